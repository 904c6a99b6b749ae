// Queries beyond a filter: what several partitions have to be merged for, and how a query goes on.

package headwater;

import static headwater.Harness.check;
import static headwater.Harness.equal;
import static headwater.ItemChecks.key;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

final class QueryChecks {
    private static final List<String> WORDS = List.of("ash", "birch", "cedar");

    private QueryChecks() {}

    /** Twenty items over seven keys; `word` is missing from every fourth. */
    private static CosmosContainer filled(Context context) {
        CosmosContainer container = context.container();
        for (int number = 0; number < 20; number++) {
            Map<String, Object> item = new HashMap<>(Map.of("id", Integer.toString(number), "pk", "k" + number % 7,
                "n", number, "tags", List.of(number % 2, number % 3)));
            if (number % 4 != 0) item.put("word", WORDS.get(number % 3));
            container.createItem(item);
        }
        return container;
    }

    private static <T> List<T> ask(CosmosContainer container, String query, Class<T> kind) {
        return container.queryItems(query, new CosmosQueryRequestOptions(), kind).stream().toList();
    }

    private static List<String> groups(List<JsonNode> found) {
        return found.stream().map(each -> each.get("word").asText() + " " + each.get("many").asInt()).sorted().toList();
    }

    static void register() {
        check("queries", "parameters", context -> {
            CosmosContainer container = filled(context);
            var query = new SqlQuerySpec(
                "SELECT VALUE c.n FROM c WHERE c.word = @word AND ARRAY_CONTAINS(@numbers, c.n) ORDER BY c.n",
                new SqlParameter("@word", "birch"), new SqlParameter("@numbers", List.of(1, 2, 7, 10)));
            var found = container.queryItems(query, new CosmosQueryRequestOptions(), Integer.class).stream().toList();
            equal(found, List.of(1, 7, 10), "the numbers");
        });
        check("queries", "aggregates", context -> {
            CosmosContainer container = filled(context);
            equal(ask(container, "SELECT VALUE COUNT(1) FROM c", Integer.class), List.of(20), "the count");
            equal(ask(container, "SELECT VALUE COUNT(c.word) FROM c", Integer.class), List.of(15), "the words");
            equal(ask(container, "SELECT VALUE SUM(c.n) FROM c WHERE c.n < 10", Double.class), List.of(45.0), "the sum");
            equal(ask(container, "SELECT VALUE AVG(c.n) FROM c", Double.class), List.of(9.5), "the average");
            equal(ask(container, "SELECT VALUE MIN(c.word) FROM c", String.class), List.of("ash"), "the first");
            equal(ask(container, "SELECT VALUE MAX(c.n) FROM c", Integer.class), List.of(19), "the last");
            var several = ask(container, "SELECT COUNT(1) AS many, MAX(c.n) AS most FROM c", JsonNode.class).get(0);
            equal(List.of(several.get("many").asInt(), several.get("most").asInt()), List.of(20, 19), "both");
        });
        check("queries", "group by", context -> {
            CosmosContainer container = filled(context);
            var query = "SELECT c.word, COUNT(1) AS many FROM c WHERE IS_DEFINED(c.word) GROUP BY c.word";
            equal(groups(ask(container, query, JsonNode.class)), List.of("ash 5", "birch 5", "cedar 5"), "the groups");
            var options = new CosmosQueryRequestOptions().setPartitionKey(key("k1"));
            var found = container.queryItems(query, options, JsonNode.class).stream().toList();
            equal(groups(found), List.of("ash 1", "birch 1"), "those of a key");
        });
        check("queries", "distinct", context -> {
            CosmosContainer container = filled(context);
            var found = ask(container, "SELECT DISTINCT VALUE c.word FROM c", String.class);
            equal(found.stream().sorted().toList(), WORDS, "the words");
            var keys = ask(container, "SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.pk", String.class);
            equal(keys, IntStream.range(0, 7).mapToObj(number -> "k" + number).toList(), "the keys");
        });
        check("queries", "top, offset and limit", context -> {
            CosmosContainer container = filled(context);
            var top = "SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC";
            equal(ask(container, top, Integer.class), List.of(19, 18, 17), "the top");
            var window = "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 4 LIMIT 3";
            equal(ask(container, window, Integer.class), List.of(4, 5, 6), "the window");
            var end = "SELECT VALUE c.n FROM c OFFSET 18 LIMIT 5";
            equal(ask(container, end, Integer.class).size(), 2, "the end");
        });
        check("queries", "joins and sub-queries", context -> {
            CosmosContainer container = filled(context);
            var expected = List.of(2, 5, 8, 11, 14, 17);
            var join = "SELECT VALUE c.n FROM c JOIN t IN c.tags WHERE t = 2 ORDER BY c.n";
            equal(ask(container, join, Integer.class), expected, "the join");
            var exists = "SELECT VALUE c.n FROM c WHERE EXISTS (SELECT VALUE t FROM t IN c.tags WHERE t > 1) ORDER BY c.n";
            equal(ask(container, exists, Integer.class), expected, "the sub-query");
        });
        check("queries", "a continuation goes on in another client", context -> {
            CosmosContainer container = filled(context);
            for (String query : List.of("SELECT VALUE c.n FROM c", "SELECT VALUE c.n FROM c ORDER BY c.n DESC")) {
                List<Integer> found = new ArrayList<>();
                String token = null;
                for (int pages = 0; pages < 40; pages++) {
                    // An iteration that knows nothing of the one before.
                    var asked = container.queryItems(query, new CosmosQueryRequestOptions(), Integer.class);
                    var page = asked.iterableByPage(token, 3).iterator().next();
                    found.addAll(page.getResults());
                    token = page.getContinuationToken();
                    if (token == null) break;
                }
                equal(found.stream().sorted().toList(), IntStream.range(0, 20).boxed().toList(), query);
            }
        });
    }
}
