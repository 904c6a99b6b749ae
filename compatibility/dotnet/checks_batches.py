"""Several operations in one request: transactional batches, and bulk. The SDK sends both in HybridRow."""

from harness import check, client, done, equal, fails, item, key, outcomes, plain, split, status, value
from checks_items import create, operations, read
from Microsoft.Azure.Cosmos import (
    CosmosException,
    ItemRequestOptions,
    PatchItemRequestOptions,
    PatchOperation,
    TransactionalBatchItemRequestOptions,
)
from Newtonsoft.Json.Linq import JObject
from System import Int64


def statuses(response):
    return [int(each.StatusCode) for each in response]


def resource(response, index):
    return value(response.GetOperationResultAtIndex[JObject](index).Resource)


@check("batch", "every operation in one transaction")
def every_operation(context):
    container = context.container()
    for id in ("read", "replace", "delete", "patch"):
        create(container, {"id": id, "pk": "a", "n": 1})
    batch = (
        container.CreateTransactionalBatch(key("a"))
        .CreateItem[JObject](item({"id": "create", "pk": "a"}))
        .UpsertItem[JObject](item({"id": "upsert", "pk": "a"}))
        .ReadItem("read")
        .ReplaceItem[JObject]("replace", item({"id": "replace", "pk": "a", "n": 2}))
        .DeleteItem("delete")
        .PatchItem("patch", operations(PatchOperation.Increment("/n", Int64(1))))
    )
    response = done(batch.ExecuteAsync())
    assert response.IsSuccessStatusCode, response.ErrorMessage
    equal((status(response), statuses(response)), (200, [201, 201, 200, 200, 204, 200]))
    equal(resource(response, 5)["n"], 2)
    equal(resource(response, 2)["_etag"], response[2].ETag)
    assert response.RequestCharge > 0 and response.Headers.Session
    equal(plain(read(container, "replace", key("a")).Resource), {"id": "replace", "pk": "a", "n": 2})
    fails(404, lambda: read(container, "delete", key("a")))


@check("batch", "a failing one changes nothing")
def failing(context):
    container = context.container()
    create(container, {"id": "taken", "pk": "a"})
    batch = (
        container.CreateTransactionalBatch(key("a"))
        .CreateItem[JObject](item({"id": "new", "pk": "a"}))
        .CreateItem[JObject](item({"id": "taken", "pk": "a"}))
        .DeleteItem("taken")
    )
    response = done(batch.ExecuteAsync())
    assert not response.IsSuccessStatusCode
    equal((status(response), statuses(response)), (409, [424, 409, 424]))
    fails(404, lambda: read(container, "new", key("a")))
    read(container, "taken", key("a"))


@check("batch", "an etag guards an operation")
def preconditions(context):
    container = context.container()
    etag = create(container, {"id": "1", "pk": "a", "n": 1}).ETag
    options = TransactionalBatchItemRequestOptions()
    options.IfMatchEtag = etag
    for expected, n in ((200, 2), (412, 3)):
        given = item({"id": "1", "pk": "a", "n": n})
        batch = container.CreateTransactionalBatch(key("a")).ReplaceItem[JObject]("1", given, options)
        batch = batch.UpsertItem[JObject](item({"id": f"with-{n}", "pk": "a"}))
        equal(status(done(batch.ExecuteAsync())), expected)
    equal(value(read(container, "1", key("a")).Resource)["n"], 2)
    fails(404, lambda: read(container, "with-3", key("a")))
    known = TransactionalBatchItemRequestOptions()
    known.IfNoneMatchEtag = read(container, "1", key("a")).ETag
    response = done(container.CreateTransactionalBatch(key("a")).ReadItem("1", known).ExecuteAsync())
    equal(statuses(response), [304])


@check("batch", "a write without a returned item")
def minimal(context):
    container = context.container()
    options = TransactionalBatchItemRequestOptions()
    options.EnableContentResponseOnWrite = False
    batch = container.CreateTransactionalBatch(key("a"))
    batch = batch.CreateItem[JObject](item({"id": "1", "pk": "a"}), options).ReadItem("1")
    response = done(batch.ExecuteAsync())
    equal(statuses(response), [201, 200])
    assert response[0].ResourceStream is None and response[0].ETag
    equal(resource(response, 1)["id"], "1")


@check("batch", "limits are named")
def limits(context):
    container = context.container()
    many = container.CreateTransactionalBatch(key("a"))
    for number in range(101):
        many = many.CreateItem[JObject](item({"id": str(number), "pk": "a"}))
    response = done(many.ExecuteAsync())
    equal(status(response), 400)
    assert "Batch request has more operations than what is supported" in response.ErrorMessage
    large = container.CreateTransactionalBatch(key("a"))
    for number in range(3):
        large = large.CreateItem[JObject](item({"id": str(number), "pk": "a", "text": "x" * 800_000}))
    equal(status(done(large.ExecuteAsync())), 413)


@check("bulk", "many operations over all ranges")
def many(context):
    container = context.container()
    create(container, {"id": "0", "pk": "k0"})
    bulk = context.through(client(AllowBulkExecution=True), container)
    tasks = [
        bulk.CreateItemAsync[JObject](item({"id": str(number), "pk": f"k{number}"}), key(f"k{number}"))
        for number in range(300)
    ]
    found = outcomes(tasks)
    equal([status(each) for each in found], [409] + [201] * 299)
    assert isinstance(found[0], CosmosException) and "already exists" in found[0].Message, found[0].Message
    equal(value(read(container, "299", key("k299")).Resource)["pk"], "k299")
    assert all(each.ETag and each.RequestCharge > 0 for each in found[1:])


@check("bulk", "every operation")
def every_bulk_operation(context):
    container = context.container()
    for id in ("read", "replace", "delete", "patch"):
        create(container, {"id": id, "pk": id, "n": 1})
    bulk = context.through(client(AllowBulkExecution=True), container)
    stale, guarded = ItemRequestOptions(), PatchItemRequestOptions()
    stale.IfMatchEtag = '"stale"'
    guarded.FilterPredicate = "from c where c.n = 5"
    step = operations(PatchOperation.Increment("/n", Int64(1)))
    replaced = item({"id": "replace", "pk": "replace", "n": 2})
    found = outcomes(
        [
            bulk.UpsertItemAsync[JObject](item({"id": "upsert", "pk": "upsert"}), key("upsert")),
            bulk.ReadItemAsync[JObject]("read", key("read")),
            bulk.ReplaceItemAsync[JObject](replaced, "replace", key("replace")),
            bulk.DeleteItemAsync[JObject]("delete", key("delete")),
            bulk.PatchItemAsync[JObject]("patch", key("patch"), step),
            bulk.ReadItemAsync[JObject]("none", key("none")),
            bulk.UpsertItemAsync[JObject](item({"id": "read", "pk": "read"}), key("read"), stale),
            bulk.PatchItemAsync[JObject]("patch", key("patch"), step, guarded),
        ]
    )
    equal([status(each) for each in found], [201, 200, 200, 204, 200, 404, 412, 412])
    equal((value(found[2].Resource)["n"], value(found[4].Resource)["n"]), (2, 2))
    fails(404, lambda: read(container, "delete", key("delete")))


@check("bulk", "a write without a returned item")
def bulk_minimal(context):
    container = context.container()
    bulk = client(AllowBulkExecution=True, EnableContentResponseOnWrite=False)
    created = create(context.through(bulk, container), {"id": "1", "pk": "a"})
    equal((status(created), created.Resource), (201, None))
    assert created.ETag


@check("bulk", "large items in several requests")
def large(context):
    container = context.container()
    bulk = context.through(client(AllowBulkExecution=True), container)
    given = [{"id": str(number), "pk": f"k{number % 3}", "text": "ä" * 100_000} for number in range(12)]
    written = outcomes([bulk.CreateItemAsync[JObject](item(each)) for each in given])
    equal([status(each) for each in written], [201] * 12)
    read_back = outcomes([bulk.ReadItemAsync[JObject](each["id"], key(each["pk"])) for each in given])
    equal([plain(each.Resource) for each in read_back], given)


@check("bulk", "a split between two requests")
def after_split(context):
    container = context.container()
    bulk = context.through(client(AllowBulkExecution=True), container)

    def write(first):
        given = [{"id": str(number), "pk": f"k{number}"} for number in range(first, first + 30)]
        found = outcomes([bulk.CreateItemAsync[JObject](item(each), key(each["pk"])) for each in given])
        equal([status(each) for each in found], [201] * 30)

    write(0)
    for range_id in ("0", "1"):
        split(container, range_id)
    write(30)
    outcome = outcomes([bulk.ReadItemAsync[JObject](str(number), key(f"k{number}")) for number in range(60)])
    equal([status(each) for each in outcome], [200] * 60)
