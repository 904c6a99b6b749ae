"""Items: every operation, preconditions, batches, time to live, and keys and ids of all kinds."""

import asyncio

from azure.core import MatchConditions
from azure.cosmos import PartitionKey
from azure.cosmos.partition_key import NonePartitionKeyValue, NullPartitionKeyValue
from azure.cosmos.exceptions import CosmosBatchOperationError
from harness import check, collect, done, equal, fails

SYSTEM = ("_rid", "_self", "_etag", "_ts", "_attachments")


def plain(item):
    return {name: value for name, value in item.items() if not name.startswith("_")}


@check("items", "create returns the item with system properties")
async def create(context):
    container = await context.container()
    given = {"id": "1", "pk": "a", "deep": {"list": [1, 2.5, "drei", None, True]}}
    created = await done(container.create_item(given))
    equal(plain(created), given)
    for name in SYSTEM:
        assert name in created, f"{name} is missing"
    headers = created.get_response_headers()
    equal(headers["etag"], created["_etag"])
    assert float(headers["x-ms-request-charge"]) > 0
    assert headers["x-ms-session-token"] and headers["x-ms-activity-id"]


@check("items", "an id is made when asked for")
async def create_without_id(context):
    container = await context.container()
    created = await done(container.create_item({"pk": "a"}, enable_automatic_id_generation=True))
    equal((await done(container.read_item(created["id"], "a")))["pk"], "a")


@check("items", "read")
async def read(context):
    container = await context.container()
    await done(container.create_item({"id": "1", "pk": "a", "n": 1}))
    equal(plain(await done(container.read_item("1", "a"))), {"id": "1", "pk": "a", "n": 1})


@check("items", "a missing item is not found")
async def read_missing(context):
    container = await context.container()
    await done(container.create_item({"id": "1", "pk": "a"}))
    await fails(404, lambda: container.read_item("2", "a"))
    await fails(404, lambda: container.read_item("1", "b"))
    await fails(404, lambda: container.replace_item("2", {"id": "2", "pk": "a"}))
    await fails(404, lambda: container.delete_item("2", "a"))


@check("items", "a taken id conflicts")
async def create_twice(context):
    container = await context.container()
    await done(container.create_item({"id": "1", "pk": "a"}))
    await fails(409, lambda: container.create_item({"id": "1", "pk": "a"}))
    await done(container.create_item({"id": "1", "pk": "b"}))


@check("items", "upsert creates and replaces")
async def upsert(context):
    container = await context.container()
    await done(container.upsert_item({"id": "1", "pk": "a", "n": 1, "old": True}))
    replaced = await done(container.upsert_item({"id": "1", "pk": "a", "n": 2}))
    equal(plain(replaced), {"id": "1", "pk": "a", "n": 2})


@check("items", "replace")
async def replace(context):
    container = await context.container()
    created = await done(container.create_item({"id": "1", "pk": "a", "n": 1}))
    created["n"] = 2
    replaced = await done(container.replace_item(created, created))
    equal(replaced["n"], 2)
    equal(replaced["_rid"], created["_rid"])
    assert replaced["_etag"] != created["_etag"]


@check("items", "patch: every operation")
async def patch(context):
    container = await context.container()
    await done(container.create_item({"id": "1", "pk": "a", "n": 1, "old": 1, "list": [1, 3], "from": "x"}))
    operations = [
        {"op": "add", "path": "/new", "value": {"a": 1}},
        {"op": "add", "path": "/list/1", "value": 2},
        {"op": "set", "path": "/set", "value": [True]},
        {"op": "replace", "path": "/n", "value": 10},
        {"op": "incr", "path": "/n", "value": 5},
        {"op": "remove", "path": "/old"},
        {"op": "move", "from": "/from", "path": "/to"},
    ]
    patched = await done(container.patch_item("1", "a", operations))
    expected = {"id": "1", "pk": "a", "n": 15, "list": [1, 2, 3], "new": {"a": 1}, "set": [True], "to": "x"}
    equal(plain(patched), expected)


@check("items", "patch under a condition")
async def patch_condition(context):
    container = await context.container()
    await done(container.create_item({"id": "1", "pk": "a", "n": 1}))
    step = [{"op": "incr", "path": "/n", "value": 1}]
    await done(container.patch_item("1", "a", step, filter_predicate="from c where c.n = 1"))
    await fails(412, lambda: container.patch_item("1", "a", step, filter_predicate="from c where c.n = 1"))
    equal((await done(container.read_item("1", "a")))["n"], 2)


@check("items", "delete")
async def delete(context):
    container = await context.container()
    await done(container.create_item({"id": "1", "pk": "a"}))
    await done(container.delete_item("1", "a"))
    await fails(404, lambda: container.read_item("1", "a"))


@check("items", "a write without a returned item")
async def no_response(context):
    container = await context.container()
    equal(dict(await done(container.create_item({"id": "1", "pk": "a"}, no_response=True))), {})
    equal(dict(await done(container.upsert_item({"id": "1", "pk": "a", "n": 1}, no_response=True))), {})
    equal((await done(container.read_item("1", "a")))["n"], 1)


@check("items", "delete all of a partition key")
async def delete_key(context):
    container = await context.container()
    for number in range(5):
        await done(container.create_item({"id": str(number), "pk": "a"}))
    await done(container.create_item({"id": "0", "pk": "b"}))
    await done(container.delete_all_items_by_partition_key("a"))
    await fails(404, lambda: container.read_item("0", "a"))
    await done(container.read_item("0", "b"))


@check("items", "partition keys of every type")
async def key_types(context):
    container = await context.container()
    for id, key in (("text", "ä b+%"), ("number", 4.5), ("integer", 42), ("true", True), ("false", False)):
        await done(container.create_item({"id": id, "pk": key}))
        equal((await done(container.read_item(id, key)))["pk"], key)
    await done(container.create_item({"id": "null", "pk": None}))
    await done(container.create_item({"id": "missing"}))
    equal((await done(container.read_item("null", NullPartitionKeyValue)))["pk"], None)
    assert "pk" not in await done(container.read_item("missing", NonePartitionKeyValue))
    await fails(404, lambda: container.read_item("missing", NullPartitionKeyValue))


@check("items", "read many")
async def read_many(context):
    container = await context.container()
    wanted = []
    for number in range(20):
        await done(container.create_item({"id": str(number), "pk": f"k{number % 7}"}))
        wanted.append((str(number), f"k{number % 7}"))
    found = await done(container.read_items(wanted + [("none", "k1")]))
    equal(sorted(each["id"] for each in found), sorted(id for id, _ in wanted))


@check("items", "numbers and texts are kept exactly")
async def exact(context):
    container = await context.container()
    given = {
        "id": "1",
        "pk": "a",
        "big": 9007199254740991,
        "small": -0.000001,
        "large": 1.5e300,
        "text": "\u0000\u001f\"\\/ äöü 日本 😀 \u2028",
        "": "empty name",
    }
    await done(container.create_item(given))
    equal(plain(await done(container.read_item("1", "a"))), given)


@check("queries", "within a partition key")
async def query_key(context):
    container = await context.container()
    for number in range(10):
        await done(container.create_item({"id": str(number), "pk": "ab"[number % 2], "n": number}))
    found = container.query_items(
        "SELECT VALUE c.n FROM c WHERE c.n > @n", parameters=[{"name": "@n", "value": 3}], partition_key="a"
    )
    equal(sorted(await collect(found)), [4, 6, 8])


@check("queries", "across partitions, in order")
async def query_across(context):
    container = await context.container()
    for number in range(20):
        await done(container.create_item({"id": str(number), "pk": f"k{number}", "n": number}))
    options = {} if context.is_async else {"enable_cross_partition_query": True}
    query = "SELECT VALUE c.n FROM c ORDER BY c.n DESC"
    equal(await collect(container.query_items(query, max_item_count=3, **options)), list(range(19, -1, -1)))
    query = "SELECT VALUE COUNT(1) FROM c"
    equal(await collect(container.query_items(query, **options)), [20])


@check("preconditions", "a stale etag does not replace")
async def stale_replace(context):
    container = await context.container()
    first = await done(container.create_item({"id": "1", "pk": "a", "n": 1}))
    second = await done(container.upsert_item({"id": "1", "pk": "a", "n": 2}))
    same = {"match_condition": MatchConditions.IfNotModified}
    await fails(412, lambda: container.replace_item("1", {"id": "1", "pk": "a"}, etag=first["_etag"], **same))
    await done(container.replace_item("1", {"id": "1", "pk": "a", "n": 3}, etag=second["_etag"], **same))


@check("preconditions", "a stale etag does not upsert, patch or delete")
async def stale_others(context):
    container = await context.container()
    first = await done(container.create_item({"id": "1", "pk": "a", "n": 1}))
    second = await done(container.upsert_item({"id": "1", "pk": "a", "n": 2}))
    stale = {"etag": first["_etag"], "match_condition": MatchConditions.IfNotModified}
    fresh = {**stale, "etag": second["_etag"]}
    step = [{"op": "incr", "path": "/n", "value": 1}]
    await fails(412, lambda: container.upsert_item({"id": "1", "pk": "a"}, **stale))
    await fails(412, lambda: container.patch_item("1", "a", step, **stale))
    await fails(412, lambda: container.delete_item("1", "a", **stale))
    await done(container.delete_item("1", "a", **fresh))


@check("preconditions", "an unchanged item is not sent again")
async def not_modified(context):
    container = await context.container()
    created = await done(container.create_item({"id": "1", "pk": "a"}))
    same = {"etag": created["_etag"], "match_condition": MatchConditions.IfModified}
    found = await done(container.read_item("1", "a", **same))
    equal(dict(found), {}, "a read of an unchanged item")
    await done(container.upsert_item({"id": "1", "pk": "a", "n": 1}))
    equal((await done(container.read_item("1", "a", **same)))["n"], 1)


@check("batch", "every operation in one transaction")
async def batch(context):
    container = await context.container()
    for id in ("read", "replace", "delete", "patch"):
        await done(container.create_item({"id": id, "pk": "a", "n": 1}))
    operations = [
        ("create", ({"id": "create", "pk": "a"},)),
        ("upsert", ({"id": "upsert", "pk": "a"},)),
        ("read", ("read",)),
        ("replace", ("replace", {"id": "replace", "pk": "a", "n": 2})),
        ("delete", ("delete",)),
        ("patch", ("patch", [{"op": "incr", "path": "/n", "value": 1}])),
    ]
    results = await done(container.execute_item_batch(operations, partition_key="a"))
    equal([each["statusCode"] for each in results], [201, 201, 200, 200, 204, 200])
    equal(results[5]["resourceBody"]["n"], 2)
    assert results[0]["eTag"] and results[0]["requestCharge"] > 0


@check("batch", "a failing one changes nothing")
async def batch_fails(context):
    container = await context.container()
    await done(container.create_item({"id": "taken", "pk": "a"}))
    operations = [("create", ({"id": "new", "pk": "a"},)), ("create", ({"id": "taken", "pk": "a"},))]
    try:
        await done(container.execute_item_batch(operations, partition_key="a"))
        raise AssertionError("the batch succeeded")
    except CosmosBatchOperationError as error:
        equal(error.error_index, 1)
        equal([each["statusCode"] for each in error.operation_responses], [424, 409])
    await fails(404, lambda: container.read_item("new", "a"))


@check("batch", "limits are named")
async def batch_limits(context):
    container = await context.container()
    many = [("create", ({"id": str(number), "pk": "a"},)) for number in range(101)]
    error = await fails(400, lambda: container.execute_item_batch(many, partition_key="a"))
    assert "Batch request has more operations than what is supported" in error.message, error.message
    error = await fails(400, lambda: container.execute_item_batch([], partition_key="a"))
    assert "Batch request has no operations" in error.message, error.message
    large = [("create", ({"id": str(number), "pk": "a", "text": "x" * 800_000},)) for number in range(3)]
    await fails(413, lambda: container.execute_item_batch(large, partition_key="a"))


@check("ttl", "an item expires")
async def ttl_item(context):
    container = await context.container(default_ttl=-1)
    await done(container.create_item({"id": "short", "pk": "a", "ttl": 1}))
    await done(container.create_item({"id": "long", "pk": "a", "ttl": -1}))
    await asyncio.sleep(2.5)
    await fails(404, lambda: container.read_item("short", "a"))
    await done(container.read_item("long", "a"))
    await done(container.create_item({"id": "short", "pk": "a"}))


@check("ttl", "the container's default applies")
async def ttl_default(context):
    container = await context.container(default_ttl=1)
    await done(container.create_item({"id": "default", "pk": "a"}))
    await done(container.create_item({"id": "own", "pk": "a", "ttl": 100}))
    await asyncio.sleep(2.5)
    await fails(404, lambda: container.read_item("default", "a"))
    await done(container.read_item("own", "a"))


@check("ttl", "an impossible one is refused")
async def ttl_bad(context):
    container = await context.container(default_ttl=-1)
    for bad in (0, -2, "10", None):
        await fails(400, lambda: container.create_item({"id": "1", "pk": "a", "ttl": bad}))


@check("hierarchical keys", "create, read, replace, delete")
async def hierarchical(context):
    key = PartitionKey(path=["/tenant", "/user", "/session"], kind="MultiHash")
    container = await context.container(path=key)
    item = {"id": "1", "tenant": "t", "user": "u", "session": 3}
    await done(container.create_item(item))
    full = ["t", "u", 3]
    equal(plain(await done(container.read_item("1", full))), item)
    await done(container.replace_item("1", {**item, "n": 1}))
    equal((await done(container.read_item("1", full)))["n"], 1)
    await fails(404, lambda: container.read_item("1", ["t", "u", 4]))
    await done(container.delete_item("1", full))


@check("hierarchical keys", "query by a prefix")
async def hierarchical_query(context):
    key = PartitionKey(path=["/tenant", "/user"], kind="MultiHash")
    container = await context.container(path=key)
    for number in range(12):
        await done(container.create_item({"id": str(number), "tenant": f"t{number % 3}", "user": f"u{number}"}))
    found = await collect(container.query_items("SELECT VALUE c.id FROM c", partition_key=["t1"]))
    equal(sorted(found, key=int), ["1", "4", "7", "10"])


@check("odd ids", "spaces, unicode, plus, percent, quotes")
async def odd_ids(context):
    container = await context.container()
    for id in ("a b", "äöü", "日本", "😀", "a+b", "a%20b", "100%", "a&b=c", "it's", 'say "x"', "a.b~c-d_e", "a,b;c:d@e"):
        await done(container.create_item({"id": id, "pk": id}))
        equal((await done(container.read_item(id, id)))["id"], id)
        await done(container.replace_item(id, {"id": id, "pk": id, "n": 1}))
        await done(container.delete_item(id, id))
        await fails(404, lambda: container.read_item(id, id))


@check("session", "a client reads what it wrote")
async def session(context):
    container = await context.container()
    created = await done(container.create_item({"id": "1", "pk": "a", "n": 1}))
    token = created.get_response_headers()["x-ms-session-token"]
    equal((await done(container.read_item("1", "a", session_token=token)))["n"], 1)
