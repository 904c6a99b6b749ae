"""Runs the checks with the official Python client: `main.py sync` or `main.py async`."""

import asyncio
import sys
import uuid
from contextlib import asynccontextmanager

import azure.cosmos
import azure.cosmos.aio
import harness

# Importing a file of checks registers them.
import checks_account  # noqa: F401
import checks_items  # noqa: F401
import checks_queries  # noqa: F401
import checks_feed  # noqa: F401
import checks_scripts  # noqa: F401


class Context:
    """A client, and a fresh database for those checks that ask for one."""

    def __init__(self, client, is_async):
        self.client = client
        self.is_async = is_async
        self.databases = []

    def new_client(self, key=harness.KEY, **options):
        kind = azure.cosmos.aio.CosmosClient if self.is_async else azure.cosmos.CosmosClient
        return kind(harness.ENDPOINT, key, **options)

    async def database(self):
        name = f"python-{uuid.uuid4().hex[:8]}"
        database = await harness.done(self.client.create_database(name))
        self.databases.append(database)
        return database

    async def container(self, path="/pk", **options):
        key = path if isinstance(path, azure.cosmos.PartitionKey) else azure.cosmos.PartitionKey(path=path)
        database = await self.database()
        return await harness.done(database.create_container("items", key, **options))


def contexts(is_async):
    kind = azure.cosmos.aio.CosmosClient if is_async else azure.cosmos.CosmosClient

    @asynccontextmanager
    async def context():
        client = kind(harness.ENDPOINT, harness.KEY)
        made = Context(client, is_async)
        try:
            yield made
            for database in made.databases:
                await harness.done(made.client.delete_database(database))
        finally:
            if is_async:
                await client.close()

    return context


if __name__ == "__main__":
    is_async = sys.argv[1:] == ["async"]
    name = "python-async" if is_async else "python"
    sys.exit(asyncio.run(harness.run(name, contexts(is_async))))
