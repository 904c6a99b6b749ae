// The client, and the databases a check made.

package headwater;

import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosDatabaseRequestOptions;
import com.azure.cosmos.models.ThroughputProperties;
import java.util.ArrayList;
import java.util.List;

final class Context {
    final CosmosClient client = builder(Harness.KEY).buildClient();
    final CosmosAsyncClient async = builder(Harness.KEY).buildAsyncClient();
    final List<CosmosDatabase> databases = new ArrayList<>();

    static CosmosClientBuilder builder(String key) {
        return settings().key(key);
    }

    /** A client that has no key, only what a permission grants. */
    static CosmosClientBuilder guest(String token) {
        return settings().resourceToken(token);
    }

    private static CosmosClientBuilder settings() {
        return new CosmosClientBuilder()
            .endpoint(Harness.ENDPOINT)
            .gatewayMode()
            .consistencyLevel(ConsistencyLevel.SESSION)
            .contentResponseOnWriteEnabled(true);
    }

    CosmosDatabase database() {
        String id = Harness.unique("java");
        client.createDatabase(id);
        CosmosDatabase database = client.getDatabase(id);
        databases.add(database);
        return database;
    }

    CosmosContainer container() {
        return container(new CosmosContainerProperties("items", "/pk"), null);
    }

    CosmosContainer container(CosmosContainerProperties properties, ThroughputProperties throughput) {
        CosmosDatabase database = database();
        if (throughput == null) database.createContainer(properties);
        else database.createContainer(properties, throughput);
        return database.getContainer(properties.getId());
    }

    void end() {
        databases.forEach(database -> database.delete(new CosmosDatabaseRequestOptions()));
        databases.clear();
    }
}
