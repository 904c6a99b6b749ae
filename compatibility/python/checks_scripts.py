"""Stored procedures, triggers and user-defined functions."""

from azure.cosmos import documents
from harness import check, collect, done, equal, fails

CREATE_TWO = """function (first, second) {
    var collection = getContext().getCollection(), made = [];
    [first, second].forEach(function (id) {
        var accepted = collection.createDocument(collection.getSelfLink(), { id: id, pk: 'a' },
            function (error, item) {
                if (error) throw error;
                made.push(item.id);
                if (made.length === 2) getContext().getResponse().setBody(made);
            });
        if (!accepted) throw new Error('not accepted');
    });
}"""

STAMP = """function () {
    var request = getContext().getRequest(), item = request.getBody();
    item.stamped = true;
    request.setBody(item);
}"""

COUNT = """function () {
    var collection = getContext().getCollection();
    collection.upsertDocument(collection.getSelfLink(),
        { id: 'last', pk: 'a', of: getContext().getResponse().getBody().id },
        function (error) { if (error) throw error; });
}"""


@check("scripts", "create, read, replace, list, delete")
async def scripts_round(context):
    scripts = (await context.container()).scripts
    await done(scripts.create_stored_procedure({"id": "p", "body": "function () {}"}))
    equal((await done(scripts.get_stored_procedure("p")))["body"], "function () {}")
    await done(scripts.replace_stored_procedure("p", {"id": "p", "body": "function () { return 1 }"}))
    equal([each["id"] for each in await collect(scripts.list_stored_procedures())], ["p"])
    await done(scripts.delete_stored_procedure("p"))
    await fails(404, lambda: scripts.get_stored_procedure("p"))


def run(context, scripts, name, arguments):
    """Runs a stored procedure for the key "a"; the two forms of the SDK disagree about a name."""
    named = {"parameters" if context.is_async else "params": arguments}
    return scripts.execute_stored_procedure(name, partition_key="a", **named)


@check("scripts", "execute a stored procedure")
async def scripts_execute(context):
    container = await context.container()
    scripts = container.scripts
    await done(scripts.create_stored_procedure({"id": "two", "body": CREATE_TWO}))
    made = await done(run(context, scripts, "two", ["1", "2"]))
    equal(made, ["1", "2"])
    equal((await done(container.read_item("2", "a")))["id"], "2")
    await done(scripts.create_stored_procedure(
        {"id": "echo", "body": "function (a, b) { getContext().getResponse().setBody(a + b) }"}))
    equal(await done(run(context, scripts, "echo", ["x", 1])), "x1")


@check("scripts", "a stored procedure that fails changes nothing")
async def scripts_fail(context):
    container = await context.container()
    scripts = container.scripts
    await done(container.create_item({"id": "2", "pk": "a"}))
    await done(scripts.create_stored_procedure({"id": "two", "body": CREATE_TWO}))
    await fails(
        400,
        lambda: run(context, scripts, "two", ["1", "2"]),
        substatus=409,
    )
    await fails(404, lambda: container.read_item("1", "a"))


@check("scripts", "what a stored procedure writes is one change")
async def scripts_feed(context):
    container = await context.container()
    scripts = container.scripts
    await done(scripts.create_stored_procedure({"id": "two", "body": CREATE_TWO}))
    await done(run(context, scripts, "two", ["1", "2"]))
    changes = await collect(container.query_items_change_feed(start_time="Beginning", partition_key="a"))
    equal([change["id"] for change in changes], ["1", "2"])
    equal(changes[0]["_lsn"], changes[1]["_lsn"])


@check("scripts", "triggers run where they are named")
async def scripts_triggers(context):
    container = await context.container()
    kinds, operations = documents.TriggerType, documents.TriggerOperation
    for name, body, kind, operation in [
        ("stamp", STAMP, kinds.Pre, operations.All),
        ("count", COUNT, kinds.Post, operations.Create),
    ]:
        await done(container.scripts.create_trigger(
            {"id": name, "body": body, "triggerType": kind, "triggerOperation": operation}))
    made = await done(container.create_item(
        {"id": "1", "pk": "a"}, pre_trigger_include="stamp", post_trigger_include="count"))
    equal(made["stamped"], True)
    equal((await done(container.read_item("last", "a")))["of"], "1")
    await fails(400, lambda: container.create_item({"id": "2", "pk": "a"}, pre_trigger_include="absent"))


@check("scripts", "a user-defined function in a query")
async def scripts_functions(context):
    container = await context.container()
    await done(container.scripts.create_user_defined_function(
        {"id": "twice", "body": "function twice(n) { return 2 * n }"}))
    for n in range(1, 4):
        await done(container.create_item({"id": str(n), "pk": "a", "n": n}))
    query = "SELECT VALUE udf.twice(c.n) FROM c WHERE udf.twice(c.n) > 2"
    equal(sorted(await collect(container.query_items(query, partition_key="a"))), [4, 6])
