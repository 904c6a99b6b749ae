// Read feed, partition key ranges, and the change feed as the articles read it: `a_im`, an access condition
// that is empty, `*` or the etag of the last page, and a page at a time.

import { check, ensure, equal, notOffered, numbers, restartServer, sleep, sortedIds, split } from "../javascript/harness.mjs";

async function fill({ client }, link, first, last, keys = 7) {
  for (let n = first; n < last; n++) await client.call("createDocument", link, { id: String(n), pk: `k${n % keys}`, n });
}

/** Reads a change feed to its end, and remembers where that was: the etag of the last page. */
class Feed {
  constructor({ client }, link, condition, options = {}) {
    Object.assign(this, { client, link, condition, options });
  }

  async page() {
    const accessCondition = { type: "IfNoneMatch", condition: this.condition };
    const options = { a_im: "Incremental feed", accessCondition, ...this.options };
    const { items, headers } = await this.client.page("readDocuments", this.link, options);
    ensure(headers.etag, "a page without an etag");
    this.condition = headers.etag;
    return items;
  }

  async pages() {
    const pages = [];
    for (let page = await this.page(); page.length > 0; page = await this.page()) pages.push(page);
    return pages;
  }

  read = async () => (await this.pages()).flat();
  ids = async () => (await this.read()).map((each) => each.id);
}

const BEGINNING = "";
const NOW = "*";
/** The client has no option for a range, but sends what it is told to send. */
const ofRange = (id) => ({ initialHeaders: { "x-ms-documentdb-partitionkeyrangeid": id } });

export default function register() {
  check("read feed", "all items, page by page", async (context) => {
    const link = await context.container();
    await fill(context, link, 0, 25);
    const iterator = context.client.inner.readDocuments(link, { maxItemCount: 4 });
    const found = [];
    while (iterator.hasMoreResults()) {
      const page = await new Promise((done, fail) => iterator.executeNext((error, items) => (error ? fail(error) : done(items))));
      if (page === undefined) break;
      ensure(page.length <= 4, "the page is too long");
      found.push(...page);
    }
    equal(sortedIds(found.map((each) => each.id)), numbers(0, 25));
  });

  check("feed ranges", "they cover the container", async (context) => {
    const link = await context.container();
    const ranges = await context.client.list("readPartitionKeyRanges", link);
    ensure(ranges.length >= 2, `${ranges.length} ranges`);
    equal(ranges[0].minInclusive, "");
    equal(ranges.at(-1).maxExclusive, "FF");
    for (let at = 1; at < ranges.length; at++) equal(ranges[at].minInclusive, ranges[at - 1].maxExclusive);
  });

  articles();
  scopes();
  disturbances();
}

function articles() {
  check("change feed", "from the beginning", async (context) => {
    const link = await context.container();
    await fill(context, link, 0, 20);
    await context.client.call("upsertDocument", link, { id: "3", pk: "k3", n: 100 });
    await context.client.call("deleteDocument", `${link}/docs/4`, { partitionKey: "k4" });
    const feed = new Feed(context, link, BEGINNING);
    const found = await feed.read();
    equal(sortedIds(found.map((each) => each.id)), numbers(0, 20).filter((id) => id !== "4"));
    ensure(found.every((each) => each._lsn > 0), "an item has no position");
    equal(await feed.ids(), []);
    await fill(context, link, 20, 23);
    equal(sortedIds(await feed.ids()), numbers(20, 23));
    // The article says that leaving the condition out means the same.
    const { items } = await context.client.page("readDocuments", link, { a_im: "Incremental feed" });
    ensure(items.length > 0, "without a condition there is nothing");
  });

  check("change feed", "from now", async (context) => {
    const link = await context.container();
    await fill(context, link, 0, 10);
    const feed = new Feed(context, link, NOW);
    equal(await feed.ids(), []);
    await fill(context, link, 10, 20);
    equal(sortedIds(await feed.ids()), numbers(10, 20));
  });

  check("change feed", "from a time", async (context) => {
    const link = await context.container();
    await fill(context, link, 0, 10);
    await sleep(2100);
    const middle = new Date();
    await sleep(100);
    await fill(context, link, 10, 20);
    // In the version this client speaks, a time is answered with a position, and no items.
    const options = { a_im: "Incremental feed", initialHeaders: { "If-Modified-Since": middle.toUTCString() } };
    const found = [];
    for (const { id } of await context.client.list("readPartitionKeyRanges", link)) {
      Object.assign(options.initialHeaders, ofRange(id).initialHeaders);
      const { items, headers } = await context.client.page("readDocuments", link, options);
      equal(items, []);
      found.push(...(await new Feed(context, link, headers.etag, ofRange(id)).ids()));
    }
    equal(sortedIds(found), numbers(10, 20));
  });

  check("change feed", "page sizes", async (context) => {
    const link = await context.container();
    await fill(context, link, 0, 20);
    const pages = await new Feed(context, link, BEGINNING, { maxItemCount: 3 }).pages();
    equal(pages.flat().length, 20);
    ensure(pages.every((page) => page.length <= 3), "a page is too long");
  });

  notOffered("change feed", "a transaction stays on one page");
  notOffered("change feed", "of a hierarchical key and its prefix");
  notOffered("change feed", "of a part of a range");
  notOffered("change feed", "all versions and deletes");
  notOffered("change feed", "all versions: an expired item is a delete");
}

function scopes() {
  check("change feed", "of one partition key", async (context) => {
    const link = await context.container();
    await fill(context, link, 0, 21);
    const feed = new Feed(context, link, BEGINNING, { partitionKey: "k3" });
    equal(await feed.ids(), ["3", "10", "17"]);
    await fill(context, link, 21, 28);
    equal(await feed.ids(), ["24"]);
  });

  check("change feed", "of one range", async (context) => {
    const link = await context.container();
    await fill(context, link, 0, 20);
    const ranges = await context.client.list("readPartitionKeyRanges", link);
    const feeds = ranges.map(({ id }) => new Feed(context, link, BEGINNING, ofRange(id)));
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
    await fill(context, link, 20, 30);
    equal(await all(), numbers(20, 30));
  });
}

function disturbances() {
  check("change feed", "resumes after a restart of the server", async (context) => {
    const link = await context.container();
    await fill(context, link, 0, 10);
    const feed = new Feed(context, link, BEGINNING);
    equal(sortedIds(await feed.ids()), numbers(0, 10));
    await fill(context, link, 10, 15);
    await restartServer();
    equal(sortedIds(await feed.ids()), numbers(10, 15));
    await fill(context, link, 15, 20);
    equal(sortedIds(await feed.ids()), numbers(15, 20));
  });

  check("change feed", "a split during a read", async (context) => {
    const link = await context.container();
    await fill(context, link, 0, 30, 30);
    const feed = new Feed(context, link, BEGINNING);
    equal(sortedIds(await feed.ids()), numbers(0, 30));
    await fill(context, link, 30, 60, 30);
    for (const range of ["0", "1"]) await split(context.databases[0].slice(4), "items", range);
    equal(sortedIds(await feed.ids()), numbers(30, 60));
    await fill(context, link, 60, 90, 30);
    equal(sortedIds(await feed.ids()), numbers(60, 90));
    equal(sortedIds(await new Feed(context, link, BEGINNING).ids()), numbers(0, 90));
  });
}
