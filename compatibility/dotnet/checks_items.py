"""Items: every operation, preconditions, keys and ids of all kinds."""

import time

from harness import check, client, done, equal, fails, item, key, plain, status, value
from Microsoft.Azure.Cosmos import (
    ContainerProperties,
    ItemRequestOptions,
    PartitionKey,
    PartitionKeyBuilder,
    PatchItemRequestOptions,
    PatchOperation,
)
from Newtonsoft.Json.Linq import JObject, JToken
from System import Int64, String, ValueTuple
from System.Collections.Generic import List

SYSTEM = ("_rid", "_self", "_etag", "_ts", "_attachments")


def create(container, given, options=None):
    return done(container.CreateItemAsync[JObject](item(given), None, options))


def read(container, id, partition_key, options=None):
    return done(container.ReadItemAsync[JObject](id, partition_key, options))


def operations(*given):
    found = List[PatchOperation]()
    for each in given:
        found.Add(each)
    return found


@check("items", "create returns the item with system properties")
def create_item(context):
    container = context.container()
    given = {"id": "1", "pk": "a", "deep": {"list": [1, 2.5, "drei", None, True]}}
    created = create(container, given)
    equal((status(created), plain(created.Resource)), (201, given))
    for name in SYSTEM:
        assert name in value(created.Resource), f"{name} is missing"
    equal(created.ETag, value(created.Resource)["_etag"])
    assert created.RequestCharge > 0 and created.ActivityId and created.Headers.Session


@check("items", "read")
def read_item(context):
    container = context.container()
    create(container, {"id": "1", "pk": "a", "n": 1})
    equal(plain(read(container, "1", key("a")).Resource), {"id": "1", "pk": "a", "n": 1})


@check("items", "a missing item is not found")
def missing(context):
    container = context.container()
    create(container, {"id": "1", "pk": "a"})
    fails(404, lambda: read(container, "2", key("a")))
    fails(404, lambda: read(container, "1", key("b")))
    fails(404, lambda: done(container.ReplaceItemAsync[JObject](item({"id": "2", "pk": "a"}), "2", key("a"))))
    fails(404, lambda: done(container.DeleteItemAsync[JObject]("2", key("a"))))


@check("items", "a taken id conflicts")
def taken(context):
    container = context.container()
    create(container, {"id": "1", "pk": "a"})
    fails(409, lambda: create(container, {"id": "1", "pk": "a"}))
    create(container, {"id": "1", "pk": "b"})


@check("items", "upsert creates and replaces")
def upsert(context):
    container = context.container()
    given = {"id": "1", "pk": "a", "n": 1, "old": True}
    equal(status(done(container.UpsertItemAsync[JObject](item(given), key("a")))), 201)
    replaced = done(container.UpsertItemAsync[JObject](item({"id": "1", "pk": "a", "n": 2}), key("a")))
    equal((status(replaced), plain(replaced.Resource)), (200, {"id": "1", "pk": "a", "n": 2}))


@check("items", "replace")
def replace(context):
    container = context.container()
    created = create(container, {"id": "1", "pk": "a", "n": 1})
    given = item({"id": "1", "pk": "a", "n": 2})
    replaced = done(container.ReplaceItemAsync[JObject](given, "1", key("a")))
    equal(value(replaced.Resource)["n"], 2)
    equal(value(replaced.Resource)["_rid"], value(created.Resource)["_rid"])
    assert replaced.ETag != created.ETag


@check("items", "patch: every operation")
def patch(context):
    container = context.container()
    create(container, {"id": "1", "pk": "a", "n": 1, "old": 1, "list": [1, 3], "from": "x"})
    steps = operations(
        PatchOperation.Add[JToken]("/new", item({"a": 1})),
        PatchOperation.Add[Int64]("/list/1", 2),
        PatchOperation.Set[JToken]("/set", JToken.Parse("[true]")),
        PatchOperation.Replace[Int64]("/n", 10),
        PatchOperation.Increment("/n", Int64(5)),
        PatchOperation.Remove("/old"),
        PatchOperation.Move("/from", "/to"),
    )
    patched = done(container.PatchItemAsync[JObject]("1", key("a"), steps))
    expected = {"id": "1", "pk": "a", "n": 15, "list": [1, 2, 3], "new": {"a": 1}, "set": [True], "to": "x"}
    equal(plain(patched.Resource), expected)


@check("items", "patch under a condition")
def patch_condition(context):
    container = context.container()
    create(container, {"id": "1", "pk": "a", "n": 1})
    options = PatchItemRequestOptions()
    options.FilterPredicate = "from c where c.n = 1"
    step = operations(PatchOperation.Increment("/n", Int64(1)))
    done(container.PatchItemAsync[JObject]("1", key("a"), step, options))
    fails(412, lambda: done(container.PatchItemAsync[JObject]("1", key("a"), step, options)))
    equal(value(read(container, "1", key("a")).Resource)["n"], 2)


@check("items", "delete")
def delete(context):
    container = context.container()
    create(container, {"id": "1", "pk": "a"})
    equal(status(done(container.DeleteItemAsync[JObject]("1", key("a")))), 204)
    fails(404, lambda: read(container, "1", key("a")))


@check("items", "a write without a returned item")
def minimal(context):
    container = context.container()
    options = ItemRequestOptions()
    options.EnableContentResponseOnWrite = False
    created = create(container, {"id": "1", "pk": "a"}, options)
    equal((status(created), created.Resource), (201, None))
    assert created.ETag


@check("items", "partition keys of every type")
def key_types(context):
    container = context.container()
    for id, given in (("text", "ä b+%"), ("number", 4.5), ("integer", 42.0), ("true", True), ("false", False)):
        create(container, {"id": id, "pk": given})
        equal(value(read(container, id, key(given)).Resource)["pk"], given)
    create(container, {"id": "null", "pk": None})
    create(container, {"id": "missing"})
    equal(value(read(container, "null", PartitionKey.Null).Resource)["pk"], None)
    # `None` is a word of Python.
    no_key = getattr(PartitionKey, "None")
    assert "pk" not in value(read(container, "missing", no_key).Resource)


@check("items", "read many")
def read_many(context):
    container = context.container()
    Pair = ValueTuple[String, PartitionKey]
    wanted = List[Pair]()
    for number in range(20):
        create(container, {"id": str(number), "pk": f"k{number % 7}"})
        wanted.Add(Pair(str(number), key(f"k{number % 7}")))
    wanted.Add(Pair("none", key("k1")))
    found = done(container.ReadManyItemsAsync[JObject](wanted))
    equal(sorted(int(value(each)["id"]) for each in found), list(range(20)))


@check("items", "numbers and texts are kept exactly")
def exact(context):
    container = context.container()
    text = "\u0000\u001f\"\\/ äöü 日本 😀 \u2028"
    given = {"id": "1", "pk": "a", "big": 9007199254740991, "small": -0.000001, "text": text, "": "empty name"}
    create(container, given)
    equal(plain(read(container, "1", key("a")).Resource), given)


@check("preconditions", "a stale etag does not replace")
def stale_replace(context):
    container = context.container()
    stale = create(container, {"id": "1", "pk": "a", "n": 1}).ETag
    options = ItemRequestOptions()
    options.IfMatchEtag = stale
    replace = lambda n: done(
        container.ReplaceItemAsync[JObject](item({"id": "1", "pk": "a", "n": n}), "1", key("a"), options)
    )
    replace(2)
    fails(412, lambda: replace(3))
    equal(value(read(container, "1", key("a")).Resource)["n"], 2)


@check("preconditions", "a stale etag does not upsert, patch or delete")
def stale_others(context):
    container = context.container()
    options, patch_options = ItemRequestOptions(), PatchItemRequestOptions()
    options.IfMatchEtag = patch_options.IfMatchEtag = create(container, {"id": "1", "pk": "a", "n": 1}).ETag
    given = item({"id": "1", "pk": "a", "n": 2})
    done(container.UpsertItemAsync[JObject](given, key("a")))
    fails(412, lambda: done(container.UpsertItemAsync[JObject](given, key("a"), options)))
    fails(412, lambda: done(container.DeleteItemAsync[JObject]("1", key("a"), options)))
    step = operations(PatchOperation.Increment("/n", Int64(1)))
    fails(412, lambda: done(container.PatchItemAsync[JObject]("1", key("a"), step, patch_options)))


@check("preconditions", "an unchanged item is not sent again")
def unchanged(context):
    container = context.container()
    options = ItemRequestOptions()
    options.IfNoneMatchEtag = create(container, {"id": "1", "pk": "a"}).ETag
    fails(304, lambda: read(container, "1", key("a"), options))


@check("ttl", "an item expires")
def expires(context):
    container = context.container(ttl=-1)
    create(container, {"id": "short", "pk": "a", "ttl": 1})
    create(container, {"id": "long", "pk": "a", "ttl": -1})
    time.sleep(2.2)
    fails(404, lambda: read(container, "short", key("a")))
    read(container, "long", key("a"))


@check("hierarchical keys", "create, read, replace, delete")
def hierarchical(context):
    paths = List[String]()
    for path in ("/tenant", "/user"):
        paths.Add(path)
    properties = ContainerProperties("items", paths)
    container = done(context.database().CreateContainerAsync(properties)).Container
    given = {"id": "1", "tenant": "t", "user": 5}
    create(container, given)
    whole = PartitionKeyBuilder().Add("t").Add(5.0).Build()
    equal(plain(read(container, "1", whole).Resource), given)
    changed = item({**given, "n": 1})
    equal(status(done(container.ReplaceItemAsync[JObject](changed, "1", whole))), 200)
    equal(status(done(container.DeleteItemAsync[JObject]("1", whole))), 204)


@check("odd ids", "spaces, unicode, plus, percent, quotes")
def odd_ids(context):
    container = context.container()
    for id in ("with space", "ä日本😀", "a+b", "100%", "quote\"'", "a&b=c", ";,@:"):
        create(container, {"id": id, "pk": "a"})
        equal(value(read(container, id, key("a")).Resource)["id"], id)
        equal(status(done(container.DeleteItemAsync[JObject](id, key("a")))), 204, id)


@check("session", "a client reads what it wrote")
def session(context):
    container = context.container()
    other = context.through(client(), container)
    token = create(container, {"id": "1", "pk": "a"}).Headers.Session
    options = ItemRequestOptions()
    options.SessionToken = token
    equal(status(read(other, "1", key("a"), options)), 200)
