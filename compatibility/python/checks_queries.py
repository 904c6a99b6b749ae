"""Queries beyond a filter: what several partitions have to be merged for, and how a query goes on."""

from harness import check, collect, done, equal

# Twenty items over seven keys; `word` is missing from every fourth.
WORDS = ["ash", "birch", "cedar"]


def item(number):
    made = {"id": str(number), "pk": f"k{number % 7}", "n": number, "tags": [number % 2, number % 3]}
    if number % 4:
        made["word"] = WORDS[number % 3]
    return made


async def filled(context):
    container = await context.container()
    for number in range(20):
        await done(container.create_item(item(number)))
    return container


def across(context):
    return {} if context.is_async else {"enable_cross_partition_query": True}


@check("queries", "parameters")
async def parameters(context):
    container = await filled(context)
    query = "SELECT VALUE c.n FROM c WHERE c.word = @word AND ARRAY_CONTAINS(@numbers, c.n) ORDER BY c.n"
    given = [{"name": "@word", "value": "birch"}, {"name": "@numbers", "value": [1, 2, 7, 10]}]
    equal(await collect(container.query_items(query, parameters=given, **across(context))), [1, 7, 10])
    equal(await collect(container.query_items(query, parameters=given, partition_key="k0")), [7])


@check("queries", "aggregates")
async def aggregates(context):
    container = await filled(context)
    for query, expected in [
        ("SELECT VALUE COUNT(1) FROM c", 20),
        ("SELECT VALUE COUNT(c.word) FROM c", 15),
        ("SELECT VALUE SUM(c.n) FROM c WHERE c.n < 10", 45),
        ("SELECT VALUE AVG(c.n) FROM c", 9.5),
        ("SELECT VALUE MIN(c.word) FROM c", "ash"),
        ("SELECT VALUE MAX(c.n) FROM c", 19),
    ]:
        equal(await collect(container.query_items(query, **across(context))), [expected], query)
    query = "SELECT COUNT(1) AS many, MAX(c.n) AS most FROM c"
    equal(await collect(container.query_items(query, partition_key="k0")), [{"many": 3, "most": 14}])


@check("queries", "group by")
async def group_by(context):
    container = await filled(context)
    query = "SELECT c.word, COUNT(1) AS many FROM c WHERE IS_DEFINED(c.word) GROUP BY c.word"
    # Across partitions the client has to merge groups, and says that it cannot.
    found = await collect(container.query_items(query, partition_key="k1"))
    equal(sorted((each["word"], each["many"]) for each in found), [("ash", 1), ("birch", 1)])


@check("queries", "distinct")
async def distinct(context):
    container = await filled(context)
    query = "SELECT DISTINCT VALUE c.word FROM c"
    equal(sorted(await collect(container.query_items(query, **across(context)))), WORDS)
    query = "SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.pk"
    found = await collect(container.query_items(query, max_item_count=2, **across(context)))
    equal(found, [f"k{number}" for number in range(7)])


@check("queries", "top, offset and limit")
async def windows(context):
    container = await filled(context)
    query = "SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC"
    equal(await collect(container.query_items(query, **across(context))), [19, 18, 17])
    query = "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 4 LIMIT 3"
    equal(await collect(container.query_items(query, max_item_count=2, **across(context))), [4, 5, 6])
    query = "SELECT VALUE c.n FROM c OFFSET 18 LIMIT 5"
    equal(len(await collect(container.query_items(query, **across(context)))), 2)


@check("queries", "joins and sub-queries")
async def joins(context):
    container = await filled(context)
    query = "SELECT VALUE c.n FROM c JOIN t IN c.tags WHERE t = 2 ORDER BY c.n"
    equal(await collect(container.query_items(query, **across(context))), [2, 5, 8, 11, 14, 17])
    query = "SELECT VALUE c.n FROM c WHERE EXISTS (SELECT VALUE t FROM t IN c.tags WHERE t > 1) ORDER BY c.n"
    equal(await collect(container.query_items(query, **across(context))), [2, 5, 8, 11, 14, 17])


@check("queries", "a continuation goes on in another client")
async def continuation(context):
    container = await filled(context)
    for query, options in [
        ("SELECT VALUE c.n FROM c", {"partition_key": "k1"}),
        ("SELECT VALUE c.n FROM c ORDER BY c.n DESC", {"partition_key": "k1"}),
        ("SELECT VALUE c.n FROM c", across(context)),
    ]:
        found, token = [], None
        for _ in range(30):
            client = context.new_client()
            other = client.get_database_client(context.databases[-1].id).get_container_client("items")
            pages = other.query_items(query, max_item_count=2, **options).by_page(token)
            page = await pages.__anext__() if context.is_async else next(pages)
            found += await collect(page)
            token = pages.continuation_token
            if context.is_async:
                await client.close()
            if not token:
                break
        expected = [1, 8, 15] if "partition_key" in options else list(range(20))
        equal(sorted(found), expected, query)
