"""What the .NET program needs around its checks: clients, results, and a line to the runner.

A check is a function registered under a group and a name. It passes by returning. Calls of the SDK return
.NET tasks: `done` waits for one, `outcomes` for many at a time. Nothing here decides what is right.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
import traceback
import urllib.request
import uuid
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote

ENDPOINT = os.environ["HEADWATER_ENDPOINT"]
ENDPOINT_HTTPS = os.environ["HEADWATER_ENDPOINT_HTTPS"]
KEY = os.environ["HEADWATER_ACCOUNT_KEY"]
# What .NET on Linux trusts besides the system's authorities; read when the first connection is made.
os.environ["SSL_CERT_FILE"] = os.environ["HEADWATER_AUTHORITY"]

import runtime

runtime.start(Path(os.environ["HEADWATER_MODULES"]) / "node_modules/@azure/mcp-linux-x64/dist")

from Microsoft.Azure.Cosmos import (  # noqa: E402
    ConnectionMode,
    ContainerProperties,
    CosmosClient,
    CosmosClientOptions,
    CosmosException,
    PartitionKey,
    PartitionKeyBuilder,
)
from Newtonsoft.Json import JsonConvert  # noqa: E402
from Newtonsoft.Json.Linq import JObject, JToken  # noqa: E402
from System import AggregateException, Array, Boolean, TimeSpan  # noqa: E402
from System.Threading.Tasks import Task  # noqa: E402

_checks = []


def check(group, name):
    """Registers a check. Names are shared with the other languages' programs."""

    def register(function):
        _checks.append((group, name, function))
        return function

    return register


def not_offered(group, name):
    """A check that the SDK has no operation for."""
    _checks.append((group, name, None))


def equal(found, expected, about=""):
    assert found == expected, f"{about}: found {found!r}, expected {expected!r}".removeprefix(": ")


def done(task):
    """The result of a task; its error as the exception it is."""
    return task.GetAwaiter().GetResult()


def outcomes(tasks):
    """Waits for all tasks: for each its response or its exception."""
    try:
        Task.WaitAll(Array[Task](tasks))
    except AggregateException:
        pass  # Each task has its own.
    return [task.Exception.InnerException if task.IsFaulted else task.Result for task in tasks]


def status(outcome):
    """The status of a response or of an exception."""
    return int(outcome.StatusCode)


def fails(expected, work, substatus=None):
    """Does the work and demands that the server refuses it with this status."""
    try:
        work()
    except CosmosException as error:
        equal(int(error.StatusCode), expected, error.Message)
        if substatus is not None:
            equal(error.SubStatusCode, substatus, error.Message)
        return error
    raise AssertionError(f"expected {expected}, but it succeeded")


def item(value):
    """A Python value as the SDK serialises it."""
    return JObject.Parse(json.dumps(value))


def value(found):
    """What the SDK read, as a Python value."""
    return json.loads(JsonConvert.SerializeObject(found))


def plain(found):
    return {name: each for name, each in value(found).items() if not name.startswith("_")}


def key(value):
    """A partition key of one value."""
    if isinstance(value, bool):
        # Otherwise it would become a number.
        return PartitionKeyBuilder().Add.Overloads[Boolean](value).Build()
    return PartitionKey(value)


def pages(iterator):
    """The pages of an iterator of the SDK, as lists of values."""
    found = []
    while iterator.HasMoreResults:
        found.append([value(each) for each in done(iterator.ReadNextAsync())])
    return found


def query(container, text, options=None, kind=JToken):
    """All results of a query."""
    iterator = container.GetItemQueryIterator[kind](text, None, options)
    return [each for page in pages(iterator) for each in page]


def client(endpoint=ENDPOINT, account_key=KEY, **options):
    """A client in gateway mode. Options are properties of `CosmosClientOptions`."""
    settings = CosmosClientOptions()
    settings.ConnectionMode = ConnectionMode.Gateway
    settings.MaxRetryAttemptsOnRateLimitedRequests = 2
    settings.RequestTimeout = TimeSpan.FromSeconds(20)
    for name, option in options.items():
        assert hasattr(settings, name), name
        setattr(settings, name, option)
    return CosmosClient(endpoint, account_key, settings)


class Context:
    """A fresh database for a check, shared by all clients it opens."""

    shared = None

    def __init__(self):
        # One client for all checks: each one opens connections and reads the account.
        Context.shared = Context.shared or client()
        self.client = Context.shared
        self.names = []

    def database(self):
        name = f"dotnet-{uuid.uuid4().hex[:8]}"
        created = done(self.client.CreateDatabaseAsync(name)).Database
        self.names.append(name)
        return created

    def container(self, path="/pk", ttl=None):
        properties = ContainerProperties("items", path)
        if ttl is not None:
            properties.DefaultTimeToLive = ttl
        return done(self.database().CreateContainerAsync(properties)).Container

    def through(self, other, container):
        """The same container, through another client."""
        return other.GetContainer(container.Database.Id, container.Id)

    def close(self):
        for name in self.names:
            done(self.client.GetDatabase(name).DeleteAsync())


def restart_server():
    """Asks the runner to restart the server, and waits until it is done."""
    print(json.dumps({"control": "restart"}), flush=True)
    answer = json.loads(sys.stdin.readline())
    assert answer.get("done"), f"the runner could not: {answer}"


def split(container, range_id):
    """A signed request to Headwater's own paths, which no official client knows."""
    database, name = container.Database.Id, container.Id
    date = formatdate(usegmt=True)
    text = f"post\ncolls\ndbs/{database}/colls/{name}\n{date.lower()}\n\n"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    token = quote(f"type=master&ver=1.0&sig={base64.b64encode(digest).decode()}", safe="")
    request = urllib.request.Request(
        f"{ENDPOINT}/_headwater/partitions/{quote(database)}/{quote(name)}/split",
        method="POST",
        data=json.dumps({"range": range_id}).encode(),
        headers={"authorization": token, "x-ms-date": date, "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        response.read()


def report(group, name, **result):
    print(json.dumps({"client": "dotnet", "group": group, "check": name, **result}), flush=True)


def run():
    """Runs every check, one after the other; the exit code says whether all passed."""
    failed = 0
    only = os.environ.get("HEADWATER_ONLY", "")
    for group, name, function in _checks:
        if only and only not in f"{group}: {name}":
            continue
        if function is None:
            report(group, name, ok=True, offered=False)
            continue
        detail, started = "", time.monotonic()
        context = Context()
        try:
            function(context)
            context.close()
        except Exception as error:  # Whatever goes wrong is the result of the check.
            detail = f"{type(error).__name__}: {error}".strip()[:600]
            if os.environ.get("HEADWATER_VERBOSE"):
                traceback.print_exc()
        failed += bool(detail)
        report(group, name, ok=not detail, detail=detail)
        if os.environ.get("HEADWATER_VERBOSE"):
            print(f"{time.monotonic() - started:6.2f} s  {group}: {name}", file=sys.stderr)
    return 1 if failed else 0
