"""Start-up, databases, containers, throughput, users: what is there before any item."""

import uuid

from azure.cosmos import PartitionKey, ThroughputProperties
from harness import ENDPOINT, check, collect, done, equal, fails


@check("start-up", "reads the account")
async def reads_the_account(context):
    if context.is_async:
        await done(context.client.__aenter__())
        account = await context.client._get_database_account()
    else:
        account = context.client.get_database_account()
    equal(account.ConsistencyPolicy["defaultConsistencyLevel"], "Session")
    at = account.WritableLocations[0]["databaseAccountEndpoint"]
    equal(at.rstrip("/"), ENDPOINT.rstrip("/"), "the endpoint the account names")


@check("start-up", "refuses a wrong key")
async def refuses_a_wrong_key(context):
    async def use():
        wrong = context.new_client(key="d3Jvbmcgd3Jvbmcgd3Jvbmc=")
        try:
            await collect(wrong.list_databases())
        finally:
            if context.is_async:
                await wrong.close()

    await fails(401, use)


@check("databases", "create, read, list, delete")
async def databases_round(context):
    name = f"round-{uuid.uuid4().hex[:8]}"
    created = await done(context.client.create_database(name))
    properties = await done(created.read())
    equal(properties["id"], name)
    assert properties["_rid"] and properties["_self"] and properties["_etag"]
    assert name in [each["id"] for each in await collect(context.client.list_databases())]
    await done(context.client.delete_database(name))
    await fails(404, created.read)


@check("databases", "create if not exists")
async def databases_if_not_exists(context):
    name = (await context.database()).id
    again = await done(context.client.create_database_if_not_exists(name))
    equal(again.id, name)


@check("databases", "a taken id conflicts")
async def databases_conflict(context):
    name = (await context.database()).id
    await fails(409, lambda: context.client.create_database(name))


@check("databases", "query by id")
async def databases_query(context):
    name = (await context.database()).id
    found = await collect(
        context.client.query_databases(
            "SELECT * FROM root r WHERE r.id = @id", parameters=[{"name": "@id", "value": name}]
        )
    )
    equal([each["id"] for each in found], [name])


@check("containers", "create, read, list, delete")
async def containers_round(context):
    database = await context.database()
    created = await done(database.create_container("orders", PartitionKey(path="/pk")))
    properties = await done(created.read())
    equal(properties["partitionKey"]["paths"], ["/pk"])
    equal(properties["partitionKey"]["version"], 2)
    equal(properties["indexingPolicy"]["indexingMode"], "consistent")
    equal([each["id"] for each in await collect(database.list_containers())], ["orders"])
    await done(database.delete_container("orders"))
    await fails(404, created.read)


@check("containers", "create if not exists")
async def containers_if_not_exists(context):
    database = await context.database()
    for _ in range(2):
        made = await done(database.create_container_if_not_exists("orders", PartitionKey(path="/pk")))
        equal(made.id, "orders")


@check("containers", "a taken id conflicts")
async def containers_conflict(context):
    database = await context.database()
    await done(database.create_container("orders", PartitionKey(path="/pk")))
    await fails(409, lambda: database.create_container("orders", PartitionKey(path="/pk")))


@check("containers", "policies come back as given")
async def containers_policies(context):
    indexing = {
        "indexingMode": "consistent",
        "automatic": True,
        "includedPaths": [{"path": "/*"}],
        "excludedPaths": [{"path": "/big/*"}],
        "compositeIndexes": [[{"path": "/a", "order": "ascending"}, {"path": "/b", "order": "descending"}]],
    }
    unique = {"uniqueKeys": [{"paths": ["/email"]}]}
    container = await context.container(
        indexing_policy=indexing, unique_key_policy=unique, default_ttl=3600, analytical_storage_ttl=-1
    )
    properties = await done(container.read())
    for part, value in indexing.items():
        if part == "excludedPaths":
            assert value[0] in properties["indexingPolicy"][part]
        else:
            equal(properties["indexingPolicy"][part], value, part)
    equal(properties["uniqueKeyPolicy"]["uniqueKeys"][0]["paths"], ["/email"])
    equal(properties["defaultTtl"], 3600)


@check("containers", "replace changes what may change")
async def containers_replace(context):
    database = await context.database()
    key = PartitionKey(path="/pk")
    container = await done(database.create_container("orders", key))
    await done(database.replace_container(container, key, default_ttl=60))
    equal((await done(container.read()))["defaultTtl"], 60)


@check("containers", "query by id")
async def containers_query(context):
    database = await context.database()
    for name in ("one", "two"):
        await done(database.create_container(name, PartitionKey(path="/pk")))
    found = await collect(database.query_containers("SELECT * FROM c WHERE c.id = 'two'"))
    equal([each["id"] for each in found], ["two"])


@check("containers", "made anew under its name")
async def containers_anew(context):
    database = await context.database()
    key = PartitionKey(path="/pk")
    first = await done(database.create_container("orders", key))
    await done(first.create_item({"id": "1", "pk": "a"}))
    await done(database.delete_container(first))
    second = await done(database.create_container("orders", key))
    await fails(404, lambda: second.read_item("1", "a"))
    # The client still remembers the first one, and must find out by itself.
    await done(first.create_item({"id": "1", "pk": "a"}))


@check("containers", "unique keys")
async def containers_unique(context):
    container = await context.container(unique_key_policy={"uniqueKeys": [{"paths": ["/email"]}]})
    await done(container.create_item({"id": "1", "pk": "a", "email": "x"}))
    await fails(409, lambda: container.create_item({"id": "2", "pk": "a", "email": "x"}))
    await done(container.create_item({"id": "2", "pk": "b", "email": "x"}))


@check("throughput", "read")
async def throughput_read(context):
    container = await context.container(offer_throughput=700)
    equal((await done(container.get_throughput())).offer_throughput, 700)


@check("throughput", "replace")
async def throughput_replace(context):
    container = await context.container(offer_throughput=400)
    await done(container.replace_throughput(1000))
    equal((await done(container.get_throughput())).offer_throughput, 1000)


@check("throughput", "autoscale")
async def throughput_autoscale(context):
    container = await context.container(
        offer_throughput=ThroughputProperties(auto_scale_max_throughput=5000)
    )
    equal((await done(container.get_throughput())).auto_scale_max_throughput, 5000)


@check("throughput", "of a database")
async def throughput_database(context):
    name = f"shared-{uuid.uuid4().hex[:8]}"
    database = await done(context.client.create_database(name, offer_throughput=600))
    context.databases.append(database)
    equal((await done(database.get_throughput())).offer_throughput, 600)


@check("users", "a permission's token reads and does not write")
async def users_permissions(context):
    database = await context.database()
    container = await done(database.create_container("orders", PartitionKey(path="/pk")))
    await done(container.create_item({"id": "1", "pk": "a"}))
    user = await done(database.create_user({"id": "reader"}))
    link = (await done(container.read()))["_self"]
    permission = await done(
        user.create_permission({"id": "orders", "permissionMode": "Read", "resource": link})
    )
    token = permission.properties["_token"]
    guest = context.new_client(key={container.container_link: token, link: token})
    try:
        orders = guest.get_database_client(database.id).get_container_client("orders")
        equal((await done(orders.read_item("1", "a")))["id"], "1")
        await fails(403, lambda: orders.create_item({"id": "2", "pk": "a"}))
    finally:
        if context.is_async:
            await guest.close()
    equal([each["id"] for each in await collect(user.list_permissions())], ["orders"])
    equal([each["id"] for each in await collect(database.list_users())], ["reader"])
