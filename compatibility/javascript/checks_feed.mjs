// Read feed, feed ranges, and the change feed in all the ways the client can ask for it.

import { check, ensure, equal, numbers, restartServer, sleep, sortedIds, split } from "./harness.mjs";

async function fill(container, first, last, keys = 7) {
  for (let n = first; n < last; n++) await container.items.create({ id: String(n), pk: `k${n % keys}`, n });
}

export default function register(cosmos) {
  const { ChangeFeedStartFrom, ChangeFeedMode, PartitionKeyKind } = cosmos;

  /** Reads a change feed to its end, and remembers where that was. */
  class Feed {
    constructor(container, start, options = {}) {
      Object.assign(this, { container, start, options });
    }

    async pages() {
      const options = { ...this.options, changeFeedStartFrom: this.start };
      const iterator = this.container.items.getChangeFeedIterator(options);
      const pages = [];
      // The client goes round the ranges; only a whole round without changes is the end.
      let quiet = 0;
      while (quiet < 12) {
        const page = await iterator.readNext();
        this.start = ChangeFeedStartFrom.Continuation(page.continuationToken);
        quiet = page.statusCode === 304 ? quiet + 1 : 0;
        if (page.result?.length) pages.push(page.result);
      }
      return pages;
    }

    read = async () => (await this.pages()).flat();
    ids = async () => (await this.read()).map((each) => each.id);
  }

  const beginning = (range) => ChangeFeedStartFrom.Beginning(range);

  check("read feed", "all items, page by page", async (context) => {
    const container = await context.container();
    await fill(container, 0, 25);
    const iterator = container.items.readAll({ maxItemCount: 4 });
    const found = [];
    while (iterator.hasMoreResults()) {
      const { resources } = await iterator.fetchNext();
      ensure((resources ?? []).length <= 4, "the page is too long");
      found.push(...(resources ?? []));
    }
    equal(sortedIds(found.map((each) => each.id)), numbers(0, 25));
  });

  check("feed ranges", "they cover the container", async (context) => {
    const container = await context.container();
    await fill(container, 0, 20);
    const ranges = await container.getFeedRanges();
    ensure(ranges.length >= 2, `${ranges.length} ranges`);
    const found = [];
    for (const range of ranges) found.push(...(await new Feed(container, beginning(range)).ids()));
    equal(sortedIds(found), numbers(0, 20));
  });

  check("change feed", "from the beginning", async (context) => {
    const container = await context.container();
    await fill(container, 0, 20);
    await container.items.upsert({ id: "3", pk: "k3", n: 100 });
    await container.item("4", "k4").delete();
    const feed = new Feed(container, beginning());
    const found = await feed.read();
    equal(sortedIds(found.map((each) => each.id)), numbers(0, 20).filter((id) => id !== "4"));
    ensure(found.every((each) => each._lsn > 0), "an item has no position");
    equal(await feed.ids(), []);
    await fill(container, 20, 23);
    equal(sortedIds(await feed.ids()), numbers(20, 23));
  });

  check("change feed", "from now", async (context) => {
    const container = await context.container();
    await fill(container, 0, 10);
    const feed = new Feed(container, ChangeFeedStartFrom.Now());
    equal(await feed.ids(), []);
    await fill(container, 10, 20);
    equal(sortedIds(await feed.ids()), numbers(10, 20));
  });

  check("change feed", "from a time", async (context) => {
    const container = await context.container();
    await fill(container, 0, 10);
    await sleep(2100);
    const middle = new Date();
    await sleep(100);
    await fill(container, 10, 20);
    const from = (time) => new Feed(container, ChangeFeedStartFrom.Time(time)).ids();
    equal(sortedIds(await from(middle)), numbers(10, 20));
    equal(await from(new Date(Date.now() + 3_600_000)), []);
    equal(sortedIds(await from(new Date(Date.now() - 3_600_000))), numbers(0, 20));
  });

  check("change feed", "of one partition key", async (context) => {
    const container = await context.container();
    await fill(container, 0, 21);
    const feed = new Feed(container, beginning("k3"));
    equal(await feed.ids(), ["3", "10", "17"]);
    await fill(container, 21, 28);
    equal(await feed.ids(), ["24"]);
  });

  check("change feed", "of a hierarchical key and its prefix", async (context) => {
    const partitionKey = { paths: ["/tenant", "/user"], kind: PartitionKeyKind.MultiHash, version: 2 };
    const container = await context.container({ partitionKey });
    for (const id of numbers(0, 12)) await container.items.create({ id, tenant: `t${id % 3}`, user: `u${id % 2}` });
    equal(sortedIds(await new Feed(container, beginning(["t1", "u1"])).ids()), ["1", "7"]);
    equal(sortedIds(await new Feed(container, beginning(["t1"])).ids()), ["1", "4", "7", "10"]);
  });

  check("change feed", "of one range", async (context) => {
    const container = await context.container();
    await fill(container, 0, 20);
    const feeds = (await container.getFeedRanges()).map((range) => new Feed(container, beginning(range)));
    const all = async () => {
      const found = [];
      for (const feed of feeds) {
        const ids = await feed.ids();
        equal(ids, sortedIds(ids), "the order:");
        found.push(...ids);
      }
      return sortedIds(found);
    };
    equal(await all(), numbers(0, 20));
    await fill(container, 20, 30);
    equal(await all(), numbers(20, 30));
  });

  check("change feed", "of a part of a range", async (context) => {
    const container = await context.container();
    await fill(container, 0, 20);
    const [first] = await container.getFeedRanges();
    const whole = await new Feed(container, beginning(first)).ids();
    const middle = "0A000000000000000000000000000000";
    const found = [];
    for (const [minInclusive, maxExclusive] of [[first.minInclusive, middle], [middle, first.maxExclusive]]) {
      found.push(...(await new Feed(container, beginning(new first.constructor(minInclusive, maxExclusive))).ids()));
    }
    equal(sortedIds(found), sortedIds(whole));
  });

  check("change feed", "page sizes", async (context) => {
    const container = await context.container();
    await fill(container, 0, 20);
    const pages = await new Feed(container, beginning(), { maxItemCount: 3 }).pages();
    equal(pages.flat().length, 20);
    ensure(pages.every((page) => page.length <= 3), "a page is too long");
  });

  check("change feed", "a transaction stays on one page", async (context) => {
    const container = await context.container();
    for (const number of [0, 1, 2]) {
      const create = (part) => ({ operationType: "Create", resourceBody: { id: `${number}-${part}`, pk: "a" } });
      await container.items.batch([0, 1, 2, 3, 4].map(create), "a");
    }
    const pages = await new Feed(container, beginning("a"), { maxItemCount: 1 }).pages();
    equal(pages.map((page) => page.length), [5, 5, 5]);
    for (const page of pages) equal(new Set(page.map((each) => each._lsn)).size, 1);
  });

  check("change feed", "resumes after a restart of the server", async (context) => {
    const container = await context.container();
    await fill(container, 0, 10);
    const feed = new Feed(container, beginning());
    equal(sortedIds(await feed.ids()), numbers(0, 10));
    await fill(container, 10, 15);
    await restartServer();
    equal(sortedIds(await feed.ids()), numbers(10, 15));
    await fill(container, 15, 20);
    equal(sortedIds(await feed.ids()), numbers(15, 20));
  });

  check("change feed", "a split during a read", async (context) => {
    const container = await context.container();
    await fill(container, 0, 30, 30);
    const feed = new Feed(container, beginning());
    equal(sortedIds(await feed.ids()), numbers(0, 30));
    await fill(container, 30, 60, 30);
    for (const range of ["0", "1"]) await split(container.database.id, "items", range);
    equal(sortedIds(await feed.ids()), numbers(30, 60));
    await fill(container, 60, 90, 30);
    equal(sortedIds(await feed.ids()), numbers(60, 90));
    equal(sortedIds(await new Feed(container, beginning()).ids()), numbers(0, 90));
  });

  check("change feed", "all versions and deletes", async (context) => {
    const container = await context.container({ changeFeedPolicy: { retentionDuration: 10 } });
    await fill(container, 0, 3);
    const options = { changeFeedMode: ChangeFeedMode.AllVersionsAndDeletes };
    const feed = new Feed(container, ChangeFeedStartFrom.Now(), options);
    equal(await feed.read(), []);
    await container.items.create({ id: "x", pk: "a", n: 1 });
    await container.items.upsert({ id: "x", pk: "a", n: 2 });
    await container.item("x", "a").delete();
    const changes = await feed.read();
    equal(changes.map((each) => each.metadata.operationType), ["create", "replace", "delete"]);
    equal(changes.map((each) => each.current?.n), [1, 2, undefined]);
    equal(changes[1].previous.n, 1);
    equal(changes[2].previous.n, 2);
    equal(await feed.read(), []);
  });

  check("change feed", "all versions: an expired item is a delete", async (context) => {
    const container = await context.container({ defaultTtl: -1, changeFeedPolicy: { retentionDuration: 10 } });
    const options = { changeFeedMode: ChangeFeedMode.AllVersionsAndDeletes };
    const feed = new Feed(container, ChangeFeedStartFrom.Now(), options);
    await feed.read();
    await container.items.create({ id: "x", pk: "a", ttl: 1 });
    const found = [];
    for (let attempt = 0; attempt < 20 && found.length < 2; attempt++) {
      found.push(...(await feed.read()));
      await sleep(500);
    }
    equal(found.map((each) => each.metadata.operationType), ["create", "delete"]);
    equal(found[1].metadata.timeToLiveExpired, true);
  });
}
