// Stored procedures, triggers and user-defined functions.

import { check, equal, fails } from "./harness.mjs";

const CREATE_TWO = `function (first, second) {
  const collection = getContext().getCollection(), made = [];
  for (const id of [first, second]) {
    const accepted = collection.createDocument(collection.getSelfLink(), { id, pk: "a" }, (error, item) => {
      if (error) throw error;
      made.push(item.id);
      if (made.length === 2) getContext().getResponse().setBody(made);
    });
    if (!accepted) throw new Error("not accepted");
  }
}`;

const STAMP = `function () {
  const request = getContext().getRequest(), item = request.getBody();
  item.stamped = true;
  request.setBody(item);
}`;

const COUNT = `function () {
  const collection = getContext().getCollection();
  const last = { id: "last", pk: "a", of: getContext().getResponse().getBody().id };
  collection.upsertDocument(collection.getSelfLink(), last, (error) => { if (error) throw error; });
}`;

export default function register(cosmos) {
  check("scripts", "create, read, replace, list, delete", async (context) => {
    const { scripts } = await context.container();
    await scripts.storedProcedures.create({ id: "p", body: "function () {}" });
    const procedure = scripts.storedProcedure("p");
    equal((await procedure.read()).resource.body, "function () {}");
    await procedure.replace({ id: "p", body: "function () { return 1 }" });
    const { resources } = await scripts.storedProcedures.readAll().fetchAll();
    equal(resources.map((each) => each.id), ["p"]);
    await procedure.delete();
    await fails(404, () => procedure.read());
  });

  check("scripts", "execute a stored procedure", async (context) => {
    const container = await context.container();
    const { scripts } = container;
    await scripts.storedProcedures.create({ id: "two", body: CREATE_TWO });
    const made = await scripts.storedProcedure("two").execute("a", ["1", "2"]);
    equal(made.resource, ["1", "2"]);
    equal((await container.item("2", "a").read()).resource.id, "2");
    const echo = "function (a, b) { console.log('called'); getContext().getResponse().setBody(a + b) }";
    await scripts.storedProcedures.create({ id: "echo", body: echo });
    const answer = await scripts.storedProcedure("echo").execute("a", ["x", 1], { enableScriptLogging: true });
    equal(answer.resource, "x1");
    equal(decodeURIComponent(answer.headers["x-ms-documentdb-script-log-results"]), "called");
  });

  check("scripts", "a stored procedure that fails changes nothing", async (context) => {
    const container = await context.container();
    await container.items.create({ id: "2", pk: "a" });
    await container.scripts.storedProcedures.create({ id: "two", body: CREATE_TWO });
    const error = await fails(400, () => container.scripts.storedProcedure("two").execute("a", ["1", "2"]));
    equal(Number(error.substatus), 409);
    equal((await container.item("1", "a").read()).statusCode, 404);
  });

  check("scripts", "what a stored procedure writes is one change", async (context) => {
    const container = await context.container();
    await container.scripts.storedProcedures.create({ id: "two", body: CREATE_TWO });
    await container.scripts.storedProcedure("two").execute("a", ["1", "2"]);
    const start = cosmos.ChangeFeedStartFrom.Beginning("a");
    const iterator = container.items.getChangeFeedIterator({ changeFeedStartFrom: start, maxItemCount: 1 });
    const page = await iterator.readNext();
    equal(page.result.map((change) => change.id), ["1", "2"]);
    equal(page.result[0]._lsn, page.result[1]._lsn);
  });

  check("scripts", "triggers run where they are named", async (context) => {
    const container = await context.container();
    const { TriggerType, TriggerOperation } = cosmos;
    await container.scripts.triggers.create(
      { id: "stamp", body: STAMP, triggerType: TriggerType.Pre, triggerOperation: TriggerOperation.All });
    await container.scripts.triggers.create(
      { id: "count", body: COUNT, triggerType: TriggerType.Post, triggerOperation: TriggerOperation.Create });
    const options = { preTriggerInclude: ["stamp"], postTriggerInclude: ["count"] };
    const { resource } = await container.items.create({ id: "1", pk: "a" }, options);
    equal(resource.stamped, true);
    equal((await container.item("last", "a").read()).resource.of, "1");
    await fails(400, () => container.items.create({ id: "2", pk: "a" }, { preTriggerInclude: ["absent"] }));
  });

  check("scripts", "a user-defined function in a query", async (context) => {
    const container = await context.container();
    const body = "function twice(n) { return 2 * n }";
    await container.scripts.userDefinedFunctions.create({ id: "twice", body });
    for (const n of [1, 2, 3]) await container.items.create({ id: String(n), pk: "a", n });
    const query = "SELECT VALUE udf.twice(c.n) FROM c WHERE udf.twice(c.n) > 2";
    const { resources } = await container.items.query(query, { partitionKey: "a" }).fetchAll();
    equal(resources.sort(), [4, 6]);
  });
}
