"""Queries, most of them over several partitions: the SDK merges by the plan of the server."""

from checks_items import create
from harness import check, client, done, equal, item, key, outcomes, query, value
from Microsoft.Azure.Cosmos import QueryDefinition, QueryRequestOptions
from Newtonsoft.Json.Linq import JObject, JToken


def filled(context, count=20, keys=20):
    container = context.container()
    tasks = []
    for number in range(count):
        given = {"id": str(number), "pk": f"k{number % keys}", "n": number, "g": number % 3}
        tasks.append(container.CreateItemAsync[JObject](item(given)))
    outcomes(tasks)
    return container


@check("queries", "within a partition key")
def within(context):
    container = filled(context, keys=2)
    options = QueryRequestOptions()
    options.PartitionKey = key("k0")
    text = QueryDefinition("SELECT VALUE c.n FROM c WHERE c.n > @n").WithParameter("@n", JToken.Parse("13"))
    iterator = container.GetItemQueryIterator[JToken](text, None, options)
    equal(sorted(value(each) for each in done(iterator.ReadNextAsync())), [14, 16, 18])


@check("queries", "across partitions, in order")
def across(context):
    container = filled(context)
    equal(query(container, "SELECT VALUE c.n FROM c ORDER BY c.n DESC"), list(range(19, -1, -1)))
    equal(
        [(each["g"], each["n"]) for each in query(container, "SELECT c.g, c.n FROM c WHERE c.n < 6 ORDER BY c.n")],
        [(number % 3, number) for number in range(6)],
    )


@check("queries", "aggregates")
def aggregates(context):
    container = filled(context)
    for text, expected in (
        ("COUNT(1)", 20),
        ("SUM(c.n)", 190),
        ("MIN(c.n)", 0),
        ("MAX(c.n)", 19),
        ("AVG(c.n)", 9.5),
    ):
        equal(query(container, f"SELECT VALUE {text} FROM c"), [expected], text)


@check("queries", "group by")
def group_by(context):
    container = filled(context)
    found = query(container, "SELECT c.g, COUNT(1) AS many, AVG(c.n) AS mean FROM c GROUP BY c.g")
    found = sorted((each["g"], each["many"], each["mean"]) for each in found)
    equal(found, [(0, 7, 9.0), (1, 7, 10.0), (2, 6, 9.5)])
    equal(sorted(query(container, "SELECT VALUE AVG(c.n) FROM c GROUP BY c.g")), [9.0, 9.5, 10.0])


@check("queries", "distinct")
def distinct(context):
    container = filled(context)
    equal(sorted(query(container, "SELECT DISTINCT VALUE c.g FROM c")), [0, 1, 2])
    found = query(container, "SELECT DISTINCT c.g FROM c ORDER BY c.g")
    equal([each["g"] for each in found], [0, 1, 2])


@check("queries", "top, offset and limit")
def paging(context):
    container = filled(context)
    equal(query(container, "SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n"), [0, 1, 2])
    equal(query(container, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 5 LIMIT 4"), [5, 6, 7, 8])


@check("queries", "joins and sub-queries")
def joins(context):
    container = context.container()
    create(container, {"id": "1", "pk": "a", "tags": ["x", "y"]})
    create(container, {"id": "2", "pk": "b", "tags": ["y"]})
    equal(sorted(query(container, "SELECT VALUE t FROM c JOIN t IN c.tags")), ["x", "y", "y"])
    text = "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'x')"
    equal(query(container, text), ["1"])


@check("queries", "a continuation goes on in another client")
def continuation(context):
    container = filled(context)
    options = QueryRequestOptions()
    options.MaxItemCount = 7
    text = "SELECT VALUE c.n FROM c ORDER BY c.n"
    page = done(container.GetItemQueryIterator[JToken](text, None, options).ReadNextAsync())
    found = [value(each) for each in page]
    other = context.through(client(), container)
    iterator = other.GetItemQueryIterator[JToken](text, page.ContinuationToken, options)
    while iterator.HasMoreResults:
        found += [value(each) for each in done(iterator.ReadNextAsync())]
    equal(found, list(range(20)))
