"""The account, databases and containers."""

import harness
from harness import check, client, done, equal, fails, pages
from Microsoft.Azure.Cosmos import ContainerProperties, DatabaseProperties


@check("start-up", "reads the account")
def account(context):
    found = done(context.client.ReadAccountAsync())
    assert found.Id and list(found.WritableRegions), found.Id


@check("start-up", "refuses a wrong key")
def wrong_key(context):
    stranger = client(account_key="d3Jvbmc=")
    fails(401, lambda: done(stranger.ReadAccountAsync()))


@check("start-up", "reads the account over TLS")
def over_tls(context):
    container = context.container()
    secure = context.through(client(endpoint=harness.ENDPOINT_HTTPS), container)
    equal(done(secure.ReadContainerAsync()).Resource.Id, "items")


@check("databases", "create, read, list, delete")
def databases(context):
    database = context.database()
    equal(done(database.ReadAsync()).Resource.Id, database.Id)
    iterator = context.client.GetDatabaseQueryIterator[DatabaseProperties]()
    names = []
    while iterator.HasMoreResults:
        names += [each.Id for each in done(iterator.ReadNextAsync())]
    assert database.Id in names, names
    done(database.DeleteAsync())
    context.names.clear()
    fails(404, lambda: done(database.ReadAsync()))


@check("databases", "create if not exists")
def database_if_not_exists(context):
    name = context.database().Id
    equal(int(done(context.client.CreateDatabaseIfNotExistsAsync(name)).StatusCode), 200)


@check("databases", "a taken id conflicts")
def database_twice(context):
    name = context.database().Id
    fails(409, lambda: done(context.client.CreateDatabaseAsync(name)))


@check("containers", "create, read, list, delete")
def containers(context):
    container = context.container()
    read = done(container.ReadContainerAsync()).Resource
    equal((read.Id, read.PartitionKeyPath), ("items", "/pk"))
    iterator = container.Database.GetContainerQueryIterator[ContainerProperties]()
    equal([each.Id for each in done(iterator.ReadNextAsync())], ["items"])
    done(container.DeleteContainerAsync())
    fails(404, lambda: done(container.ReadContainerAsync()))


@check("containers", "create if not exists")
def container_if_not_exists(context):
    database = context.container().Database
    again = database.CreateContainerIfNotExistsAsync(ContainerProperties("items", "/pk"))
    equal(int(done(again).StatusCode), 200)


@check("containers", "a taken id conflicts")
def container_twice(context):
    database = context.container().Database
    fails(409, lambda: done(database.CreateContainerAsync(ContainerProperties("items", "/pk"))))


@check("throughput", "read")
def throughput(context):
    database = context.database()
    created = done(database.CreateContainerAsync(ContainerProperties("items", "/pk"), 700)).Container
    equal(done(created.ReadThroughputAsync()), 700)
    done(created.ReplaceThroughputAsync(800))
    equal(done(created.ReadThroughputAsync()), 800)


@check("read feed", "all items, page by page")
def read_feed(context):
    from Microsoft.Azure.Cosmos import QueryRequestOptions
    from Newtonsoft.Json.Linq import JObject

    container = context.container()
    for number in range(12):
        done(container.CreateItemAsync[JObject](harness.item({"id": str(number), "pk": f"k{number}"})))
    options = QueryRequestOptions()
    options.MaxItemCount = 5
    found = pages(container.GetItemQueryIterator[JObject](requestOptions=options))
    assert max(len(page) for page in found) <= 5, found
    equal(sorted(int(each["id"]) for page in found for each in page), list(range(12)))
