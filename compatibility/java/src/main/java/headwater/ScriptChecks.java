// Stored procedures, triggers and user-defined functions.

package headwater;

import static headwater.Harness.check;
import static headwater.Harness.equal;
import static headwater.Harness.fails;
import static headwater.Harness.object;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosScripts;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.CosmosStoredProcedureProperties;
import com.azure.cosmos.models.CosmosStoredProcedureRequestOptions;
import com.azure.cosmos.models.CosmosTriggerProperties;
import com.azure.cosmos.models.CosmosUserDefinedFunctionProperties;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.TriggerOperation;
import com.azure.cosmos.models.TriggerType;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;

final class ScriptChecks {
    private static final String CREATE_TWO = """
        function (first, second) {
            var collection = getContext().getCollection(), made = [];
            [first, second].forEach(function (id) {
                collection.createDocument(collection.getSelfLink(), { id: id, pk: 'a' }, function (error, item) {
                    if (error) throw error;
                    made.push(item.id);
                    if (made.length === 2) getContext().getResponse().setBody(made.join());
                });
            });
        }""";
    private static final String STAMP = """
        function () {
            var request = getContext().getRequest(), item = request.getBody();
            item.stamped = true;
            request.setBody(item);
        }""";
    private static final PartitionKey KEY = new PartitionKey("a");

    private ScriptChecks() {}

    static void register() {
        check("scripts", "execute a stored procedure", context -> {
            CosmosContainer container = context.container();
            equal(executeTwo(container.getScripts()), "\"1,2\"", "the answer");
            equal(container.readItem("2", KEY, JsonNode.class).getItem().get("id").asText(), "2", "the id");
        });
        check("scripts", "a stored procedure that fails changes nothing", context -> {
            CosmosContainer container = context.container();
            container.createItem(object("id", "2", "pk", "a"));
            var refused = fails(400, () -> executeTwo(container.getScripts()));
            equal(refused.getSubStatusCode(), 409, "the sub-status");
            fails(404, () -> container.readItem("1", KEY, JsonNode.class));
        });
        check("scripts", "triggers run where they are named", context -> {
            CosmosContainer container = context.container();
            container.getScripts().createTrigger(new CosmosTriggerProperties("stamp", STAMP)
                .setTriggerType(TriggerType.PRE)
                .setTriggerOperation(TriggerOperation.ALL));
            var options = new CosmosItemRequestOptions().setPreTriggerInclude(List.of("stamp"));
            JsonNode made = container.<JsonNode>createItem(object("id", "1", "pk", "a"), KEY, options).getItem();
            equal(made.get("stamped").asBoolean(), true, "stamped");
            var absent = new CosmosItemRequestOptions().setPreTriggerInclude(List.of("absent"));
            fails(400, () -> container.createItem(object("id", "2", "pk", "a"), KEY, absent));
        });
        check("scripts", "a user-defined function in a query", context -> {
            CosmosContainer container = context.container();
            container.getScripts().createUserDefinedFunction(
                new CosmosUserDefinedFunctionProperties("twice", "function twice(n) { return 2 * n }"));
            for (int n = 1; n <= 3; n++) container.createItem(object("id", "" + n, "pk", "a", "n", n));
            var options = new CosmosQueryRequestOptions().setPartitionKey(KEY);
            String query = "SELECT VALUE udf.twice(c.n) FROM c WHERE udf.twice(c.n) > 2";
            var found = container.queryItems(query, options, Integer.class).stream().sorted().toList();
            equal(found, List.of(4, 6), "the rows");
        });
    }

    private static String executeTwo(CosmosScripts scripts) {
        scripts.createStoredProcedure(new CosmosStoredProcedureProperties("two", CREATE_TWO));
        var options = new CosmosStoredProcedureRequestOptions().setPartitionKey(KEY);
        return scripts.getStoredProcedure("two").execute(List.of("1", "2"), options).getResponseAsString();
    }
}
