// Start-up, databases, containers, throughput, users: what is there before any item.

package headwater;

import static headwater.Harness.check;
import static headwater.Harness.ensure;
import static headwater.Harness.equal;
import static headwater.Harness.fails;
import static headwater.Harness.object;
import static headwater.Harness.unique;

import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosPermissionProperties;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.CosmosUserProperties;
import com.azure.cosmos.models.ExcludedPath;
import com.azure.cosmos.models.IncludedPath;
import com.azure.cosmos.models.IndexingPolicy;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PermissionMode;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.azure.cosmos.models.ThroughputProperties;
import com.azure.cosmos.models.UniqueKey;
import com.azure.cosmos.models.UniqueKeyPolicy;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;

final class AccountChecks {
    private AccountChecks() {}

    static void register() {
        check("start-up", "reads the account", context -> {
            try (CosmosClient client = Context.builder(Harness.KEY).buildClient()) {
                ensure(client != null, "no client");
            }
        });
        check("start-up", "refuses a wrong key", context -> {
            try (CosmosClient client = Context.builder("d3Jvbmcgd3Jvbmcgd3Jvbmc=").buildClient()) {
                throw new AssertionError("a client with a wrong key was made");
            } catch (RuntimeException refused) {
                // The client wraps what the server said.
                ensure(refused.getMessage().contains("authorization token can't serve"), refused.getMessage());
            }
        });
        databases();
        containers();
        throughput();
        users();
    }

    private static void databases() {
        check("databases", "create, read, list, delete", context -> {
            String id = unique("round");
            equal(context.client.createDatabase(id).getStatusCode(), 201, "the status");
            CosmosDatabase database = context.client.getDatabase(id);
            equal(database.read().getProperties().getId(), id, "the id");
            boolean listed = context.client.readAllDatabases().stream().anyMatch(each -> each.getId().equals(id));
            ensure(listed, "it is not in the list");
            database.delete();
            fails(404, database::read);
        });
        check("databases", "create if not exists", context -> {
            String id = context.database().getId();
            equal(context.client.createDatabaseIfNotExists(id).getStatusCode(), 200, "the status");
        });
        check("databases", "a taken id conflicts", context -> {
            String id = context.database().getId();
            fails(409, () -> context.client.createDatabase(id));
        });
        check("databases", "query by id", context -> {
            String id = context.database().getId();
            SqlQuerySpec query = new SqlQuerySpec("SELECT * FROM root r WHERE r.id = @id", new SqlParameter("@id", id));
            var found = context.client.queryDatabases(query, new CosmosQueryRequestOptions()).stream();
            equal(found.map(each -> each.getId()).toList(), List.of(id), "the databases");
        });
    }

    private static void containers() {
        check("containers", "create, read, list, delete", context -> {
            CosmosContainer container = context.container();
            var properties = container.read().getProperties();
            equal(properties.getPartitionKeyDefinition().getPaths(), List.of("/pk"), "the key");
            var listed = context.databases.get(0).readAllContainers().stream().map(each -> each.getId()).toList();
            equal(listed, List.of("items"), "the containers");
            container.delete();
            fails(404, container::read);
        });
        check("containers", "create if not exists", context -> {
            CosmosDatabase database = context.database();
            equal(database.createContainerIfNotExists("orders", "/pk").getStatusCode(), 201, "first");
            equal(database.createContainerIfNotExists("orders", "/pk").getStatusCode(), 200, "second");
        });
        check("containers", "a taken id conflicts", context -> {
            context.container();
            fails(409, () -> context.databases.get(0).createContainer("items", "/pk"));
        });
        check("containers", "policies come back as given", context -> {
            var wanted = new CosmosContainerProperties("items", "/pk");
            var indexing = new IndexingPolicy();
            indexing.setIncludedPaths(List.of(new IncludedPath("/*")));
            indexing.setExcludedPaths(List.of(new ExcludedPath("/big/*")));
            wanted.setIndexingPolicy(indexing);
            wanted.setUniqueKeyPolicy(new UniqueKeyPolicy().setUniqueKeys(List.of(new UniqueKey(List.of("/email")))));
            wanted.setDefaultTimeToLiveInSeconds(3600);
            var found = context.container(wanted, null).read().getProperties();
            equal(found.getDefaultTimeToLiveInSeconds(), 3600, "the time to live");
            equal(found.getUniqueKeyPolicy().getUniqueKeys().get(0).getPaths(), List.of("/email"), "the unique key");
            ensure(found.getIndexingPolicy().getExcludedPaths().stream().anyMatch(each -> each.getPath().equals("/big/*")),
                "the excluded path is missing");
        });
        check("containers", "replace changes what may change", context -> {
            CosmosContainer container = context.container();
            var properties = container.read().getProperties();
            properties.setDefaultTimeToLiveInSeconds(60);
            container.replace(properties);
            equal(container.read().getProperties().getDefaultTimeToLiveInSeconds(), 60, "the time to live");
        });
        check("containers", "query by id", context -> {
            context.container();
            var found = context.databases.get(0).queryContainers("SELECT * FROM c WHERE c.id = 'items'").stream();
            equal(found.map(each -> each.getId()).toList(), List.of("items"), "the containers");
        });
        check("containers", "made anew under its name", context -> {
            CosmosContainer container = context.container();
            container.createItem(object("id", "1", "pk", "a"));
            container.delete();
            context.databases.get(0).createContainer("items", "/pk");
            fails(404, () -> container.readItem("1", new PartitionKey("a"), JsonNode.class));
            container.createItem(object("id", "1", "pk", "a"));
        });
        check("containers", "unique keys", context -> {
            var wanted = new CosmosContainerProperties("items", "/pk");
            wanted.setUniqueKeyPolicy(new UniqueKeyPolicy().setUniqueKeys(List.of(new UniqueKey(List.of("/email")))));
            CosmosContainer container = context.container(wanted, null);
            container.createItem(object("id", "1", "pk", "a", "email", "x"));
            fails(409, () -> container.createItem(object("id", "2", "pk", "a", "email", "x")));
            container.createItem(object("id", "2", "pk", "b", "email", "x"));
        });
    }

    private static void throughput() {
        var plain = new CosmosContainerProperties("items", "/pk");
        check("throughput", "read", context -> {
            CosmosContainer container = context.container(plain, ThroughputProperties.createManualThroughput(700));
            equal(container.readThroughput().getProperties().getManualThroughput(), 700, "the throughput");
        });
        check("throughput", "replace", context -> {
            CosmosContainer container = context.container(plain, ThroughputProperties.createManualThroughput(400));
            container.replaceThroughput(ThroughputProperties.createManualThroughput(1000));
            equal(container.readThroughput().getProperties().getManualThroughput(), 1000, "the throughput");
        });
        check("throughput", "autoscale", context -> {
            CosmosContainer container = context.container(plain, ThroughputProperties.createAutoscaledThroughput(5000));
            equal(container.readThroughput().getProperties().getAutoscaleMaxThroughput(), 5000, "the throughput");
        });
        check("throughput", "of a database", context -> {
            String id = unique("shared");
            context.client.createDatabase(id, ThroughputProperties.createManualThroughput(600));
            CosmosDatabase database = context.client.getDatabase(id);
            context.databases.add(database);
            equal(database.readThroughput().getProperties().getManualThroughput(), 600, "the throughput");
        });
    }

    private static void users() {
        // Permissions are on the asynchronous client only.
        check("users", "a permission's token reads and does not write", context -> {
            CosmosContainer container = context.container();
            container.createItem(object("id", "1", "pk", "a"));
            String database = context.databases.get(0).getId();
            context.databases.get(0).createUser(new CosmosUserProperties().setId("reader"));
            var user = context.async.getDatabase(database).getUser("reader");
            var wanted = new CosmosPermissionProperties().setId("orders").setPermissionMode(PermissionMode.READ)
                .setContainerName("items");
            var permission = user.createPermission(wanted, null).block().getProperties();
            try (CosmosClient guest = Context.guest(permission.getToken()).buildClient()) {
                CosmosContainer items = guest.getDatabase(database).getContainer("items");
                equal(items.readItem("1", new PartitionKey("a"), JsonNode.class).getItem().get("id").asText(), "1", "the id");
                fails(403, () -> items.createItem(object("id", "2", "pk", "a")));
            }
            var listed = user.readAllPermissions().collectList().block();
            equal(listed.stream().map(each -> each.getId()).toList(), List.of("orders"), "the permissions");
        });
    }
}
