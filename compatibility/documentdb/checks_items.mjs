// Items: every operation the client has, preconditions, queries, time to live, keys and ids of all kinds.

import { check, ensure, equal, fails, notOffered, numbers, plain, sleep, sortedIds } from "../javascript/harness.mjs";

import { item, registerQueries } from "../javascript/checks_queries.mjs";

const SYSTEM = ["_rid", "_self", "_etag", "_ts", "_attachments"];

/** A container's items, by link. */
class Items {
  constructor(client, link) {
    Object.assign(this, { client, link });
  }

  static async of(context, definition) {
    return new Items(context.client, await context.container(definition));
  }

  at = (id) => `${this.link}/docs/${id}`;
  create = async (item) => (await this.client.call("createDocument", this.link, item)).result;
  upsert = async (item, options = {}) => (await this.client.call("upsertDocument", this.link, item, options)).result;
  read = async (id, partitionKey, more = {}) =>
    (await this.client.call("readDocument", this.at(id), { partitionKey, ...more })).result;
  replace = async (item, options = {}) =>
    (await this.client.call("replaceDocument", this.at(item.id), item, { partitionKey: item.pk, ...options })).result;
  remove = (id, partitionKey, more = {}) => this.client.call("deleteDocument", this.at(id), { partitionKey, ...more });
  query = (query, options) => this.client.list("queryDocuments", this.link, query, options);
  missing = (id, partitionKey) => fails(404, () => this.read(id, partitionKey));
}

const ifMatch = (condition) => ({ accessCondition: { type: "IfMatch", condition } });

export default function register() {
  operations();
  preconditions();
  queries();
  timeToLive();

  check("odd ids", "spaces, unicode, plus, percent, quotes", async (context) => {
    const items = await Items.of(context);
    // The client signs the id as given and sends it with encodeURI, so a percent sign must be in neither.
    for (const id of ["a b", "äöü", "日本", "😀", "a+b", "a&b=c", "it's", 'say "x"', "a.b~c-d_e", "a,b;c:d@e"]) {
      await items.create({ id, pk: id });
      equal((await items.read(id, id)).id, id);
      await items.remove(id, id);
    }
  });

  check("session", "a client reads what it wrote", async (context) => {
    const items = await Items.of(context);
    for (const n of [1, 2, 3]) {
      await items.upsert({ id: "1", pk: "a", n });
      equal((await items.read("1", "a", { consistencyLevel: "Session" })).n, n);
    }
  });
}

function operations() {
  check("items", "create returns the item with system properties", async (context) => {
    const items = await Items.of(context);
    const given = { id: "1", pk: "a", deep: { list: [1, 2.5, "drei", null, true] } };
    const { result, headers } = await context.client.call("createDocument", items.link, given);
    equal(plain(result), given);
    for (const name of SYSTEM) ensure(name in result, `${name} is missing`);
    equal(headers.etag, result._etag);
    ensure(Number(headers["x-ms-request-charge"]) > 0 && headers["x-ms-activity-id"], "a header is missing");
  });

  check("items", "an id is made when asked for", async (context) => {
    const items = await Items.of(context);
    const { id } = await items.create({ pk: "a" });
    equal((await items.read(id, "a")).pk, "a");
  });

  check("items", "read", async (context) => {
    const items = await Items.of(context);
    const made = await items.create({ id: "1", pk: "a", n: 1 });
    equal(plain(await items.read("1", "a")), { id: "1", pk: "a", n: 1 });
    // The articles address items by their link.
    equal((await context.client.call("readDocument", made._self, { partitionKey: "a" })).result.id, "1");
  });

  check("items", "a missing item is not found", async (context) => {
    const items = await Items.of(context);
    await items.missing("2", "a");
    await fails(404, () => items.replace({ id: "2", pk: "a" }));
    await fails(404, () => items.remove("2", "a"));
  });

  check("items", "a taken id conflicts", async (context) => {
    const items = await Items.of(context);
    await items.create({ id: "1", pk: "a" });
    await fails(409, () => items.create({ id: "1", pk: "a" }));
    await items.create({ id: "1", pk: "b" });
  });

  check("items", "upsert creates and replaces", async (context) => {
    const items = await Items.of(context);
    await items.upsert({ id: "1", pk: "a", n: 1, old: true });
    equal(plain(await items.upsert({ id: "1", pk: "a", n: 2 })), { id: "1", pk: "a", n: 2 });
    equal(plain(await items.read("1", "a")), { id: "1", pk: "a", n: 2 });
  });

  check("items", "replace", async (context) => {
    const items = await Items.of(context);
    const made = await items.create({ id: "1", pk: "a", n: 1 });
    const replaced = await items.replace({ ...made, n: 2 });
    equal([replaced.n, replaced._rid], [2, made._rid]);
    ensure(replaced._etag !== made._etag, "the etag is the same");
    const again = await context.client.call("replaceDocument", made._self, { ...made, n: 3 }, { partitionKey: "a" });
    equal(again.result.n, 3);
  });

  notOffered("items", "patch: every operation");
  notOffered("items", "patch under a condition");

  check("items", "delete", async (context) => {
    const items = await Items.of(context);
    const made = await items.create({ id: "1", pk: "a" });
    await items.remove("1", "a");
    await items.missing("1", "a");
    const second = await items.create({ id: "1", pk: "a" });
    ensure(second._rid !== made._rid, "another item with the same resource id");
    await context.client.call("deleteDocument", second._self, { partitionKey: "a" });
    await items.missing("1", "a");
  });

  notOffered("items", "a write without a returned item");
  notOffered("items", "delete all of a partition key");

  check("items", "partition keys of every type", async (context) => {
    const items = await Items.of(context);
    for (const [id, pk] of [["text", "ä b+%"], ["number", 4.5], ["integer", 42], ["true", true], ["false", false], ["null", null]]) {
      await items.create({ id, pk });
      equal((await items.read(id, pk)).pk, pk, id);
    }
    await items.create({ id: "missing" });
    await items.read("missing", [{}]);
    await items.missing("missing", null);
  });

  notOffered("items", "read many");

  check("items", "numbers and texts are kept exactly", async (context) => {
    const items = await Items.of(context);
    const text = '\u0000\u001f"\\/ äöü 日本 😀 \u2028';
    const given = { id: "1", pk: "a", big: 9007199254740991, small: -0.000001, large: 1.5e300, text, "": "empty name" };
    await items.create(given);
    equal(plain(await items.read("1", "a")), given);
  });

  notOffered("batch", "every operation in one transaction");
  notOffered("batch", "a failing one changes nothing");
  notOffered("bulk", "many operations over all ranges");
  notOffered("hierarchical keys", "create, read, replace, delete");
  notOffered("hierarchical keys", "query by a prefix");
}

function preconditions() {
  check("preconditions", "a stale etag does not replace", async (context) => {
    const items = await Items.of(context);
    const first = await items.create({ id: "1", pk: "a" });
    const second = await items.upsert({ id: "1", pk: "a", n: 1 });
    await fails(412, () => items.replace({ id: "1", pk: "a", n: 2 }, ifMatch(first._etag)));
    await items.replace({ id: "1", pk: "a", n: 2 }, ifMatch(second._etag));
  });

  check("preconditions", "a stale etag does not upsert, patch or delete", async (context) => {
    const items = await Items.of(context);
    const first = await items.create({ id: "1", pk: "a" });
    const second = await items.upsert({ id: "1", pk: "a", n: 1 });
    await fails(412, () => items.upsert({ id: "1", pk: "a" }, ifMatch(first._etag)));
    await fails(412, () => items.remove("1", "a", ifMatch(first._etag)));
    await items.remove("1", "a", ifMatch(second._etag));
  });

  check("preconditions", "an unchanged item is not sent again", async (context) => {
    const items = await Items.of(context);
    const { _etag } = await items.create({ id: "1", pk: "a" });
    const unless = { accessCondition: { type: "IfNoneMatch", condition: _etag } };
    equal(await items.read("1", "a", unless), undefined);
    await items.upsert({ id: "1", pk: "a", n: 1 });
    equal((await items.read("1", "a", unless)).n, 1);
  });
}

function queries() {
  const fill = async (items, count, keys) => {
    for (let n = 0; n < count; n++) await items.create({ id: String(n), pk: `k${n % keys}`, n });
  };

  check("queries", "within a partition key", async (context) => {
    const items = await Items.of(context);
    await fill(items, 10, 2);
    const query = { query: "SELECT VALUE c.n FROM c WHERE c.n > @n", parameters: [{ name: "@n", value: 3 }] };
    equal(sortedIds(await items.query(query, { partitionKey: "k0" })), [4, 6, 8]);
  });

  check("queries", "across partitions, in order", async (context) => {
    const items = await Items.of(context);
    await fill(items, 20, 20);
    const options = { enableCrossPartitionQuery: true, maxItemCount: 3 };
    const found = await items.query("SELECT * FROM c WHERE c.n >= 5 ORDER BY c.n DESC", options);
    equal(found.map((each) => each.id), numbers(5, 20).reverse());
  });

  const given = ({ key, page } = {}) => ({
    ...(key === undefined ? { enableCrossPartitionQuery: true } : { partitionKey: key }),
    ...(page === undefined ? {} : { maxItemCount: page }),
  });
  registerQueries({
    filled: async (context) => {
      const items = await Items.of(context);
      for (let n = 0; n < 20; n++) await items.create(item(n));
      return items;
    },
    ask: (items, query, options) => items.query(query, given(options)),
    page: async (context, items, query, options, token) => {
      const client = context.newClient();
      const wanted = { ...given(options), continuation: token };
      const { items: rows, headers } = await client.page("queryDocuments", items.link, query, wanted);
      client.end();
      return { rows: rows ?? [], token: headers["x-ms-continuation"] };
    },
  });
}

function timeToLive() {
  check("ttl", "an item expires", async (context) => {
    const items = await Items.of(context, { defaultTtl: -1 });
    await items.create({ id: "short", pk: "a", ttl: 1 });
    await items.create({ id: "long", pk: "a", ttl: -1 });
    await sleep(2500);
    await items.missing("short", "a");
    await items.read("long", "a");
  });

  check("ttl", "the container's default applies", async (context) => {
    const items = await Items.of(context, { defaultTtl: 1 });
    await items.create({ id: "default", pk: "a" });
    await items.create({ id: "own", pk: "a", ttl: 100 });
    await sleep(2500);
    await items.missing("default", "a");
    await items.read("own", "a");
  });

  check("ttl", "an impossible one is refused", async (context) => {
    const items = await Items.of(context, { defaultTtl: -1 });
    for (const ttl of [0, -2, "10", null]) await fails(400, () => items.create({ id: "1", pk: "a", ttl }));
  });
}
