// Items: every operation, preconditions, batches, bulk, time to live, keys and ids of all kinds.

import { check, ensure, equal, fails, numbers, plain, sleep, sortedIds } from "./harness.mjs";

const SYSTEM = ["_rid", "_self", "_etag", "_ts", "_attachments"];

export default function register(cosmos) {
  const { BulkOperationType, PartitionKeyKind } = cosmos;

  check("items", "create returns the item with system properties", async (context) => {
    const container = await context.container();
    const given = { id: "1", pk: "a", deep: { list: [1, 2.5, "drei", null, true] } };
    const created = await container.items.create(given);
    equal(created.statusCode, 201);
    equal(plain(created.resource), given);
    for (const name of SYSTEM) ensure(name in created.resource, `${name} is missing`);
    equal(created.etag, created.resource._etag);
    ensure(created.requestCharge > 0 && created.activityId, "a header is missing");
  });

  check("items", "an id is made when asked for", async (context) => {
    const container = await context.container();
    const { resource } = await container.items.create({ pk: "a" });
    equal((await container.item(resource.id, "a").read()).resource.pk, "a");
  });

  check("items", "read", async (context) => {
    const container = await context.container();
    await container.items.create({ id: "1", pk: "a", n: 1 });
    equal(plain((await container.item("1", "a").read()).resource), { id: "1", pk: "a", n: 1 });
  });

  check("items", "a missing item is not found", async (context) => {
    const container = await context.container();
    equal((await container.item("2", "a").read()).statusCode, 404);
    await fails(404, () => container.item("2", "a").replace({ id: "2", pk: "a" }));
    await fails(404, () => container.item("2", "a").delete());
  });

  check("items", "a taken id conflicts", async (context) => {
    const container = await context.container();
    await container.items.create({ id: "1", pk: "a" });
    await fails(409, () => container.items.create({ id: "1", pk: "a" }));
    await container.items.create({ id: "1", pk: "b" });
  });

  check("items", "upsert creates and replaces", async (context) => {
    const container = await context.container();
    equal((await container.items.upsert({ id: "1", pk: "a", n: 1, old: true })).statusCode, 201);
    const second = await container.items.upsert({ id: "1", pk: "a", n: 2 });
    equal(second.statusCode, 200);
    equal(plain(second.resource), { id: "1", pk: "a", n: 2 });
  });

  check("items", "replace", async (context) => {
    const container = await context.container();
    const { resource } = await container.items.create({ id: "1", pk: "a", n: 1 });
    const replaced = (await container.item("1", "a").replace({ ...resource, n: 2 })).resource;
    equal([replaced.n, replaced._rid], [2, resource._rid]);
    ensure(replaced._etag !== resource._etag, "the etag is the same");
  });

  check("items", "patch: every operation", async (context) => {
    const container = await context.container();
    await container.items.create({ id: "1", pk: "a", n: 1, old: 1, list: [1, 3], from: "x" });
    const { resource } = await container.item("1", "a").patch([
      { op: "add", path: "/new", value: { a: 1 } },
      { op: "add", path: "/list/1", value: 2 },
      { op: "set", path: "/set", value: [true] },
      { op: "replace", path: "/n", value: 10 },
      { op: "incr", path: "/n", value: 5 },
      { op: "remove", path: "/old" },
      { op: "move", from: "/from", path: "/to" },
    ]);
    const expected = { id: "1", pk: "a", n: 15, list: [1, 2, 3], new: { a: 1 }, set: [true], to: "x" };
    equal(plain(resource), expected);
  });

  check("items", "patch under a condition", async (context) => {
    const container = await context.container();
    await container.items.create({ id: "1", pk: "a", n: 1 });
    const patch = { condition: "from c where c.n = 1", operations: [{ op: "incr", path: "/n", value: 1 }] };
    await container.item("1", "a").patch(patch);
    await fails(412, () => container.item("1", "a").patch(patch));
    equal((await container.item("1", "a").read()).resource.n, 2);
  });

  check("items", "delete", async (context) => {
    const container = await context.container();
    await container.items.create({ id: "1", pk: "a" });
    equal((await container.item("1", "a").delete()).statusCode, 204);
    equal((await container.item("1", "a").read()).statusCode, 404);
  });

  check("items", "delete all of a partition key", async (context) => {
    const container = await context.container();
    for (const id of numbers(0, 5)) await container.items.create({ id, pk: "a" });
    await container.items.create({ id: "0", pk: "b" });
    await container.deleteAllItemsForPartitionKey("a");
    equal((await container.item("0", "a").read()).statusCode, 404);
    equal((await container.item("0", "b").read()).statusCode, 200);
  });

  check("items", "partition keys of every type", async (context) => {
    const container = await context.container();
    for (const [id, pk] of [["text", "ä b+%"], ["number", 4.5], ["integer", 42], ["true", true], ["false", false], ["null", null]]) {
      await container.items.create({ id, pk });
      equal((await container.item(id, pk).read()).resource?.pk, pk, id);
    }
    await container.items.create({ id: "missing" });
    equal((await container.item("missing", {}).read()).statusCode, 200);
    equal((await container.item("missing", null).read()).statusCode, 404);
  });

  check("items", "numbers and texts are kept exactly", async (context) => {
    const container = await context.container();
    const text = '\u0000\u001f"\\/ äöü 日本 😀 \u2028';
    const given = { id: "1", pk: "a", big: 9007199254740991, small: -0.000001, large: 1.5e300, text, "": "empty name" };
    await container.items.create(given);
    equal(plain((await container.item("1", "a").read()).resource), given);
  });

  check("queries", "within a partition key", async (context) => {
    const container = await context.container();
    for (let n = 0; n < 10; n++) await container.items.create({ id: String(n), pk: "ab"[n % 2], n });
    const query = { query: "SELECT VALUE c.n FROM c WHERE c.n > @n", parameters: [{ name: "@n", value: 3 }] };
    const { resources } = await container.items.query(query, { partitionKey: "a" }).fetchAll();
    equal(resources.sort(), [4, 6, 8]);
  });

  check("queries", "across partitions, in order", async (context) => {
    const container = await context.container();
    for (let n = 0; n < 20; n++) await container.items.create({ id: String(n), pk: `k${n}`, n });
    const ordered = container.items.query("SELECT VALUE c.n FROM c ORDER BY c.n DESC", { maxItemCount: 3 });
    equal((await ordered.fetchAll()).resources, numbers(0, 20).map(Number).reverse());
    equal((await container.items.query("SELECT VALUE COUNT(1) FROM c").fetchAll()).resources, [20]);
  });

  check("queries", "with a plan from the server", async (context) => {
    const container = await context.container();
    for (let n = 0; n < 20; n++) await container.items.create({ id: String(n), pk: `k${n}`, n });
    const options = { forceQueryPlan: true, maxItemCount: 3 };
    const ordered = container.items.query("SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 2 LIMIT 5", options);
    equal((await ordered.fetchAll()).resources, [17, 16, 15, 14, 13]);
    equal((await container.items.query("SELECT VALUE AVG(c.n) FROM c", options).fetchAll()).resources, [9.5]);
  });

  check("preconditions", "a stale etag does not replace", async (context) => {
    const container = await context.container();
    const { etag } = await container.items.create({ id: "1", pk: "a" });
    const fresh = (await container.items.upsert({ id: "1", pk: "a", n: 2 })).etag;
    const replace = (condition) =>
      container.item("1", "a").replace({ id: "1", pk: "a" }, { accessCondition: { type: "IfMatch", condition } });
    await fails(412, () => replace(etag));
    await replace(fresh);
  });

  check("preconditions", "a stale etag does not upsert, patch or delete", async (context) => {
    const container = await context.container();
    const { etag } = await container.items.create({ id: "1", pk: "a", n: 1 });
    const fresh = (await container.items.upsert({ id: "1", pk: "a", n: 2 })).etag;
    const stale = { accessCondition: { type: "IfMatch", condition: etag } };
    await fails(412, () => container.items.upsert({ id: "1", pk: "a" }, stale));
    await fails(412, () => container.item("1", "a").patch([{ op: "incr", path: "/n", value: 1 }], stale));
    await fails(412, () => container.item("1", "a").delete(stale));
    await container.item("1", "a").delete({ accessCondition: { type: "IfMatch", condition: fresh } });
  });

  check("preconditions", "an unchanged item is not sent again", async (context) => {
    const container = await context.container();
    const { etag } = await container.items.create({ id: "1", pk: "a" });
    const read = () => container.item("1", "a").read({ accessCondition: { type: "IfNoneMatch", condition: etag } });
    equal((await read()).statusCode, 304);
    await container.items.upsert({ id: "1", pk: "a", n: 1 });
    equal((await read()).resource.n, 1);
  });

  check("batch", "every operation in one transaction", async (context) => {
    const container = await context.container();
    for (const id of ["read", "replace", "delete", "patch"]) await container.items.create({ id, pk: "a", n: 1 });
    const { code, result } = await container.items.batch(
      [
        { operationType: "Create", resourceBody: { id: "create", pk: "a" } },
        { operationType: "Upsert", resourceBody: { id: "upsert", pk: "a" } },
        { operationType: "Read", id: "read" },
        { operationType: "Replace", id: "replace", resourceBody: { id: "replace", pk: "a", n: 2 } },
        { operationType: "Delete", id: "delete" },
        { operationType: "Patch", id: "patch", resourceBody: { operations: [{ op: "incr", path: "/n", value: 1 }] } },
      ],
      "a",
    );
    equal(code, 200);
    equal(result.map((each) => each.statusCode), [201, 201, 200, 200, 204, 200]);
    equal(result[5].resourceBody.n, 2);
    ensure(result[0].eTag && result[0].requestCharge > 0, "a field is missing");
  });

  check("batch", "a failing one changes nothing", async (context) => {
    const container = await context.container();
    await container.items.create({ id: "taken", pk: "a" });
    const create = (id) => ({ operationType: "Create", resourceBody: { id, pk: "a" } });
    const { code, result } = await container.items.batch([create("new"), create("taken")], "a");
    equal(code, 207);
    equal(result.map((each) => each.statusCode), [424, 409]);
    equal((await container.item("new", "a").read()).statusCode, 404);
  });

  check("bulk", "many operations over all ranges", async (context) => {
    const container = await context.container();
    await container.items.create({ id: "0", pk: "k0" });
    const operations = numbers(0, 150).map((id) => ({
      operationType: BulkOperationType.Create,
      partitionKey: `k${id}`,
      resourceBody: { id, pk: `k${id}` },
    }));
    const results = await container.items.executeBulkOperations(operations);
    const statuses = results.map((each) => each.response?.statusCode ?? each.error?.code);
    equal(statuses[0], 409);
    equal(statuses.slice(1).every((status) => status === 201), true, `${statuses}`);
    equal((await container.item("149", "k149").read()).resource.pk, "k149");
  });

  check("bulk", "every operation", async (context) => {
    const container = await context.container();
    for (const id of ["read", "replace", "delete", "patch"]) await container.items.create({ id, pk: id, n: 1 });
    const results = await container.items.executeBulkOperations([
      { operationType: BulkOperationType.Upsert, partitionKey: "upsert", resourceBody: { id: "upsert", pk: "upsert" } },
      { operationType: BulkOperationType.Read, id: "read", partitionKey: "read" },
      { operationType: BulkOperationType.Replace, id: "replace", partitionKey: "replace", resourceBody: { id: "replace", pk: "replace" } },
      { operationType: BulkOperationType.Delete, id: "delete", partitionKey: "delete" },
      { operationType: BulkOperationType.Patch, id: "patch", partitionKey: "patch", resourceBody: { operations: [{ op: "incr", path: "/n", value: 1 }] } },
    ]);
    const statuses = results.map((each) => each.response?.statusCode ?? each.error?.message);
    equal(statuses, [201, 200, 200, 204, 200]);
  });

  check("bulk", "a write without a returned item", async (context) => {
    const container = await context.container();
    const create = { operationType: BulkOperationType.Create, partitionKey: "a", resourceBody: { id: "1", pk: "a" } };
    const [{ response }] = await container.items.executeBulkOperations([create], { contentResponseOnWriteEnabled: false });
    equal(response.statusCode, 201);
    ensure(!response.resourceBody && response.eTag, JSON.stringify(response));
  });

  check("ttl", "an item expires", async (context) => {
    const container = await context.container({ defaultTtl: -1 });
    await container.items.create({ id: "short", pk: "a", ttl: 1 });
    await container.items.create({ id: "long", pk: "a", ttl: -1 });
    await sleep(2500);
    equal((await container.item("short", "a").read()).statusCode, 404);
    equal((await container.item("long", "a").read()).statusCode, 200);
    await container.items.create({ id: "short", pk: "a" });
  });

  check("ttl", "the container's default applies", async (context) => {
    const container = await context.container({ defaultTtl: 1 });
    await container.items.create({ id: "default", pk: "a" });
    await container.items.create({ id: "own", pk: "a", ttl: 100 });
    await sleep(2500);
    equal((await container.item("default", "a").read()).statusCode, 404);
    equal((await container.item("own", "a").read()).statusCode, 200);
  });

  check("ttl", "an impossible one is refused", async (context) => {
    const container = await context.container({ defaultTtl: -1 });
    for (const ttl of [0, -2, null]) await fails(400, () => container.items.create({ id: "1", pk: "a", ttl }));
  });

  const hierarchical = (paths) => ({ partitionKey: { paths, kind: PartitionKeyKind.MultiHash, version: 2 } });

  check("hierarchical keys", "create, read, replace, delete", async (context) => {
    const container = await context.container(hierarchical(["/tenant", "/user", "/session"]));
    const item = { id: "1", tenant: "t", user: "u", session: 3 };
    await container.items.create(item);
    const at = container.item("1", ["t", "u", 3]);
    equal(plain((await at.read()).resource), item);
    await at.replace({ ...item, n: 1 });
    equal((await at.read()).resource.n, 1);
    equal((await container.item("1", ["t", "u", 4]).read()).statusCode, 404);
    await at.delete();
  });

  check("hierarchical keys", "query by a prefix", async (context) => {
    const container = await context.container(hierarchical(["/tenant", "/user"]));
    for (const id of numbers(0, 12)) await container.items.create({ id, tenant: `t${id % 3}`, user: `u${id}` });
    const query = container.items.query("SELECT VALUE c.id FROM c", { partitionKey: ["t1"] });
    equal(sortedIds((await query.fetchAll()).resources), ["1", "4", "7", "10"]);
  });

  check("odd ids", "spaces, unicode, plus, percent, quotes", async (context) => {
    const container = await context.container();
    for (const id of ["a b", "äöü", "日本", "😀", "a+b", "a%20b", "100%", "a&b=c", "it's", 'say "x"', "a.b~c-d_e", "a,b;c:d@e"]) {
      await container.items.create({ id, pk: id });
      const at = container.item(id, id);
      equal((await at.read()).resource?.id, id, id);
      await at.replace({ id, pk: id, n: 1 });
      await at.delete();
      equal((await at.read()).statusCode, 404, id);
    }
  });

  check("session", "a client reads what it wrote", async (context) => {
    const container = await context.container();
    const created = await container.items.create({ id: "1", pk: "a", n: 1 });
    const sessionToken = created.headers["x-ms-session-token"];
    equal((await container.item("1", "a").read({ sessionToken })).resource.n, 1);
  });
}
