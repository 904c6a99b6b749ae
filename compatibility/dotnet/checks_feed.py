"""The change feed, pulled by the SDK, and its feed ranges."""

import time

from harness import check, done, equal, item, key, not_offered, outcomes, restart_server, split, value
from Microsoft.Azure.Cosmos import ChangeFeedMode, ChangeFeedRequestOptions, ChangeFeedStartFrom, FeedRange
from Newtonsoft.Json.Linq import JObject
from System import DateTime, TimeSpan


class Feed:
    """A reader that keeps its place between reads."""

    def __init__(self, container, start, size=None):
        self.container, self.start, self.continuation = container, start, None
        self.options = ChangeFeedRequestOptions()
        if size is not None:
            self.options.PageSizeHint = size

    def pages(self):
        """The pages up to the end of the feed, through a new iterator each time."""
        start = ChangeFeedStartFrom.ContinuationToken(self.continuation) if self.continuation else self.start
        iterator = self.container.GetChangeFeedIterator[JObject](start, ChangeFeedMode.Incremental, self.options)
        found = []
        while True:
            page = done(iterator.ReadNextAsync())
            self.continuation = page.ContinuationToken
            if int(page.StatusCode) == 304:
                return found
            found.append([value(each) for each in page])

    def ids(self):
        return sorted(int(each["id"]) for page in self.pages() for each in page)


def fill(container, first, end, keys=7):
    given = [{"id": str(number), "pk": f"k{number % keys}"} for number in range(first, end)]
    for each in outcomes([container.CreateItemAsync[JObject](item(one)) for one in given]):
        equal(int(each.StatusCode), 201)


@check("feed ranges", "they cover the container")
def ranges(context):
    container = context.container()
    fill(container, 0, 20)
    found = []
    for each in done(container.GetFeedRangesAsync()):
        found += Feed(container, ChangeFeedStartFrom.Beginning(each)).ids()
    equal(sorted(found), list(range(20)))


@check("change feed", "from the beginning")
def from_beginning(context):
    container = context.container()
    fill(container, 0, 20)
    done(container.UpsertItemAsync[JObject](item({"id": "3", "pk": "k3", "n": 100})))
    done(container.DeleteItemAsync[JObject]("4", key("k4")))
    feed = Feed(container, ChangeFeedStartFrom.Beginning())
    equal(feed.ids(), [number for number in range(20) if number != 4])
    equal(feed.ids(), [])
    fill(container, 20, 23)
    equal(feed.ids(), [20, 21, 22])


@check("change feed", "from now")
def from_now(context):
    container = context.container()
    fill(container, 0, 10)
    feed = Feed(container, ChangeFeedStartFrom.Now())
    equal(feed.ids(), [])
    fill(container, 10, 20)
    equal(feed.ids(), list(range(10, 20)))


@check("change feed", "from a time")
def from_time(context):
    container = context.container()
    fill(container, 0, 10)
    time.sleep(2.1)
    middle = DateTime.UtcNow
    time.sleep(0.1)
    fill(container, 10, 20)
    equal(Feed(container, ChangeFeedStartFrom.Time(middle)).ids(), list(range(10, 20)))
    earlier = middle - TimeSpan.FromHours(1)
    equal(Feed(container, ChangeFeedStartFrom.Time(earlier)).ids(), list(range(20)))


@check("change feed", "of one partition key")
def of_key(context):
    container = context.container()
    fill(container, 0, 21)
    feed = Feed(container, ChangeFeedStartFrom.Beginning(FeedRange.FromPartitionKey(key("k3"))))
    equal(feed.ids(), [3, 10, 17])
    fill(container, 21, 28)
    equal(feed.ids(), [24])


@check("change feed", "page sizes")
def page_sizes(context):
    container = context.container()
    fill(container, 0, 20)
    sizes = [len(page) for page in Feed(container, ChangeFeedStartFrom.Beginning(), 3).pages()]
    equal(sum(sizes), 20)
    assert max(sizes) <= 3, sizes


@check("change feed", "a transaction stays on one page")
def transactions(context):
    container = context.container()
    for number in range(3):
        batch = container.CreateTransactionalBatch(key("a"))
        for part in range(5):
            batch = batch.CreateItem[JObject](item({"id": f"{number}{part}", "pk": "a"}))
        assert done(batch.ExecuteAsync()).IsSuccessStatusCode
    pages = [page for page in Feed(container, ChangeFeedStartFrom.Beginning(), 1).pages() if page]
    equal([len(page) for page in pages], [5, 5, 5])
    for page in pages:
        equal(len({each["_lsn"] for each in page}), 1, "positions on a page")


@check("change feed", "resumes after a restart of the server")
def after_restart(context):
    container = context.container()
    fill(container, 0, 10)
    feed = Feed(container, ChangeFeedStartFrom.Beginning())
    equal(feed.ids(), list(range(10)))
    fill(container, 10, 15)
    restart_server()
    equal(feed.ids(), list(range(10, 15)))
    fill(container, 15, 20)
    equal(feed.ids(), list(range(15, 20)))


@check("change feed", "a split during a read")
def during_split(context):
    container = context.container()
    fill(container, 0, 30, keys=30)
    feed = Feed(container, ChangeFeedStartFrom.Beginning())
    equal(feed.ids(), list(range(30)))
    fill(container, 30, 60, keys=30)
    for range_id in ("0", "1"):
        split(container, range_id)
    equal(feed.ids(), list(range(30, 60)))
    fill(container, 60, 90, keys=30)
    equal(feed.ids(), list(range(60, 90)))


# The released SDK keeps this mode to its preview versions.
if not hasattr(ChangeFeedMode, "AllVersionsAndDeletes"):
    not_offered("change feed", "all versions and deletes")
