"""Read feed, feed ranges, and the change feed in all the ways the client can ask for it."""

import asyncio
from datetime import datetime, timedelta, timezone

from azure.cosmos import PartitionKey
from harness import check, collect, done, equal, restart_server, split


class Feed:
    """Reads a change feed to its end, and remembers where that was."""

    def __init__(self, container, **start):
        self.container = container
        self.start = start
        self.position = None

    async def read(self, **options):
        arguments = {**self.start, **options}
        if self.position is not None:
            arguments = {**{k: v for k, v in options.items()}, "continuation": self.position}
            if "mode" in self.start:
                arguments["mode"] = self.start["mode"]
        found = await collect(self.container.query_items_change_feed(**arguments))
        self.position = self.container.client_connection.last_response_headers["etag"]
        return found

    async def ids(self, **options):
        return [each["id"] for each in await self.read(**options)]


async def fill(container, count, keys=7, first=0):
    for number in range(first, first + count):
        await done(container.create_item({"id": str(number), "pk": f"k{number % keys}", "n": number}))


def numbers(first, last):
    return [str(number) for number in range(first, last)]


def sorted_ids(ids):
    return sorted(ids, key=int)


@check("read feed", "all items, page by page")
async def read_feed(context):
    container = await context.container()
    await fill(container, 25)
    pages = []
    iterator = container.read_all_items(max_item_count=4).by_page()
    if context.is_async:
        async for page in iterator:
            pages.append([each["id"] async for each in page])
    else:
        for page in iterator:
            pages.append([each["id"] for each in page])
    equal(sorted_ids(sum(pages, [])), numbers(0, 25))
    assert len(pages) > 3 and all(len(page) <= 4 for page in pages), [len(page) for page in pages]


@check("feed ranges", "they cover the container")
async def feed_ranges(context):
    container = await context.container()
    await fill(container, 20)
    ranges = await collect(container.read_feed_ranges())
    assert len(ranges) >= 2, f"{len(ranges)} ranges"
    found = []
    for each in ranges:
        found += await Feed(container, feed_range=each, start_time="Beginning").ids()
    equal(sorted_ids(found), numbers(0, 20))


@check("feed ranges", "a key's range is within one of them")
async def feed_range_of_key(context):
    container = await context.container()
    ranges = await collect(container.read_feed_ranges())
    of_key = await done(container.feed_range_from_partition_key("k1"))
    inside = [await done(container.is_feed_range_subset(each, of_key)) for each in ranges]
    equal(inside.count(True), 1)


@check("change feed", "from the beginning")
async def from_beginning(context):
    container = await context.container()
    await fill(container, 20)
    await done(container.upsert_item({"id": "3", "pk": "k3", "n": 100}))
    await done(container.delete_item("4", "k4"))
    feed = Feed(container, start_time="Beginning")
    found = await feed.read()
    equal(sorted_ids(each["id"] for each in found), [id for id in numbers(0, 20) if id != "4"])
    assert all(each["_lsn"] > 0 for each in found)
    equal(await feed.ids(), [])
    await fill(container, 3, first=20)
    equal(sorted_ids(await feed.ids()), numbers(20, 23))


@check("change feed", "from now")
async def from_now(context):
    container = await context.container()
    await fill(container, 10)
    feed = Feed(container, start_time="Now")
    equal(await feed.ids(), [])
    await fill(container, 10, first=10)
    equal(sorted_ids(await feed.ids()), numbers(10, 20))


@check("change feed", "from a time")
async def from_time(context):
    container = await context.container()
    await fill(container, 10)
    await asyncio.sleep(2.1)
    middle = datetime.now(timezone.utc)
    await asyncio.sleep(0.1)
    await fill(container, 10, first=10)
    equal(sorted_ids(await Feed(container, start_time=middle).ids()), numbers(10, 20))
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    equal(await Feed(container, start_time=later).ids(), [])
    earlier = middle - timedelta(hours=1)
    equal(sorted_ids(await Feed(container, start_time=earlier).ids()), numbers(0, 20))


@check("change feed", "of one partition key")
async def of_key(context):
    container = await context.container()
    await fill(container, 21)
    feed = Feed(container, partition_key="k3", start_time="Beginning")
    equal(await feed.ids(), ["3", "10", "17"])
    await fill(container, 7, first=21)
    equal(await feed.ids(partition_key="k3"), ["24"])


@check("change feed", "of a hierarchical key and its prefix")
async def of_hierarchical_key(context):
    key = PartitionKey(path=["/tenant", "/user"], kind="MultiHash")
    container = await context.container(path=key)
    for number in range(12):
        await done(container.create_item({"id": str(number), "tenant": f"t{number % 3}", "user": f"u{number % 2}"}))
    feed = Feed(container, partition_key=["t1"], start_time="Beginning")
    equal(sorted_ids(await feed.ids()), ["1", "4", "7", "10"])
    feed = Feed(container, partition_key=["t1", "u1"], start_time="Beginning")
    equal(sorted_ids(await feed.ids()), ["1", "7"])


@check("change feed", "of one range")
async def of_range(context):
    container = await context.container()
    await fill(container, 20)
    found, feeds = [], []
    for each in await collect(container.read_feed_ranges()):
        feeds.append(Feed(container, feed_range=each, start_time="Beginning"))
        ids = await feeds[-1].ids()
        assert ids == sorted_ids(ids), f"out of order: {ids}"
        found += ids
    equal(sorted_ids(found), numbers(0, 20))
    await fill(container, 10, first=20)
    found = []
    for feed in feeds:
        found += await feed.ids()
    equal(sorted_ids(found), numbers(20, 30))


@check("change feed", "of a part of a range")
async def of_sub_range(context):
    container = await context.container()
    await fill(container, 20)
    for key in ("k0", "k3", "k6"):
        part = await done(container.feed_range_from_partition_key(key))
        ids = await Feed(container, feed_range=part, start_time="Beginning").ids()
        equal(ids, [id for id in numbers(0, 20) if int(id) % 7 == int(key[1])], key)


@check("change feed", "page sizes")
async def page_sizes(context):
    container = await context.container()
    await fill(container, 20)
    sizes = []
    iterator = container.query_items_change_feed(start_time="Beginning", max_item_count=3).by_page()
    if context.is_async:
        async for page in iterator:
            sizes.append(len([each async for each in page]))
    else:
        for page in iterator:
            sizes.append(len(list(page)))
    equal(sum(sizes), 20)
    assert max(sizes) <= 3, sizes


@check("change feed", "a transaction stays on one page")
async def transactions(context):
    container = await context.container()
    for number in range(3):
        batch = [("create", ({"id": f"{number}-{part}", "pk": "a"},)) for part in range(5)]
        await done(container.execute_item_batch(batch, partition_key="a"))
    pages = []
    iterator = container.query_items_change_feed(
        start_time="Beginning", max_item_count=1, partition_key="a"
    ).by_page()
    if context.is_async:
        async for page in iterator:
            pages.append([each async for each in page])
    else:
        for page in iterator:
            pages.append(list(page))
    pages = [page for page in pages if page]
    equal([len(page) for page in pages], [5, 5, 5])
    for page in pages:
        equal(len({each["_lsn"] for each in page}), 1, "positions on a page")


@check("change feed", "resumes after a restart of the server")
async def after_restart(context):
    container = await context.container()
    await fill(container, 10)
    feed = Feed(container, start_time="Beginning")
    equal(sorted_ids(await feed.ids()), numbers(0, 10))
    await fill(container, 5, first=10)
    restart_server()
    equal(sorted_ids(await feed.ids()), numbers(10, 15))
    await fill(container, 5, first=15)
    equal(sorted_ids(await feed.ids()), numbers(15, 20))


@check("change feed", "a split during a read")
async def during_split(context):
    database = await context.database()
    container = await done(database.create_container("items", PartitionKey(path="/pk")))
    await fill(container, 30, keys=30)
    feed = Feed(container, start_time="Beginning")
    equal(sorted_ids(await feed.ids()), numbers(0, 30))
    await fill(container, 30, keys=30, first=30)
    for range_id in ("0", "1"):
        split(database.id, "items", range_id)
    equal(sorted_ids(await feed.ids()), numbers(30, 60))
    await fill(container, 30, keys=30, first=60)
    equal(sorted_ids(await feed.ids()), numbers(60, 90))
    equal(sorted_ids(await Feed(container, start_time="Beginning").ids()), numbers(0, 90))


@check("change feed", "all versions and deletes")
async def all_versions(context):
    container = await context.container()
    await fill(container, 3)
    feed = Feed(container, start_time="Now", mode="AllVersionsAndDeletes")
    equal(await feed.read(), [])
    await done(container.create_item({"id": "x", "pk": "a", "n": 1}))
    await done(container.upsert_item({"id": "x", "pk": "a", "n": 2}))
    await done(container.delete_item("x", "a"))
    changes = await feed.read()
    equal([each["metadata"]["operationType"] for each in changes], ["create", "replace", "delete"])
    equal([each["current"].get("n") for each in changes], [1, 2, None])
    equal(changes[1]["previous"]["n"], 1)
    equal(changes[2]["previous"]["n"], 2)
    assert all(each["metadata"]["lsn"] > 0 and each["metadata"]["crts"] > 0 for each in changes)
    equal(await feed.read(), [])


@check("change feed", "all versions: an expired item is a delete")
async def all_versions_ttl(context):
    container = await context.container(default_ttl=-1)
    feed = Feed(container, start_time="Now", mode="AllVersionsAndDeletes")
    await feed.read()
    await done(container.create_item({"id": "x", "pk": "a", "ttl": 1}))
    found = []
    for _ in range(20):
        found += await feed.read()
        if len(found) >= 2:
            break
        await asyncio.sleep(0.5)
    equal([each["metadata"]["operationType"] for each in found], ["create", "delete"])
    equal(found[1]["metadata"]["timeToLiveExpired"], True)


@check("change feed", "all versions only from now or a position")
async def all_versions_start(context):
    container = await context.container()
    try:
        await collect(
            container.query_items_change_feed(start_time="Beginning", mode="AllVersionsAndDeletes")
        )
    except ValueError:
        return  # The client itself refuses.
    except Exception as error:
        equal(getattr(error, "status_code", None), 400)
        return
    raise AssertionError("it was served from the beginning")
