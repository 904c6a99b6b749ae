"""The change feed processor of the SDK, with leases in a container of our server."""

import json
import threading
import time

from checks_feed import fill
from harness import check, done, equal, not_offered, query
from Microsoft.Azure.Cosmos import ChangeFeedMode, Container, ContainerProperties
from System import DateTime, DateTimeKind, TimeSpan
from System.IO import StreamReader
from System.Threading.Tasks import Task


class Fleet:
    """Hosts of one processor, and what each was given."""

    def __init__(self, container):
        self.container = container
        leases = container.Database.CreateContainerAsync(ContainerProperties("leases", "/id"))
        self.leases = done(leases).Container
        self.lock = threading.Lock()
        self.seen = []

    def start(self, name):
        def handle(context, stream, token):
            documents = json.loads(StreamReader(stream).ReadToEnd())["Documents"]
            with self.lock:
                self.seen += [int(each["id"]) for each in documents]
            return Task.CompletedTask

        builder = self.container.GetChangeFeedProcessorBuilder("orders", Container.ChangeFeedStreamHandler(handle))
        host = (
            builder.WithInstanceName(name)
            .WithLeaseContainer(self.leases)
            .WithStartTime(DateTime(2020, 1, 1, 0, 0, 0, DateTimeKind.Utc))
            .WithPollInterval(TimeSpan.FromMilliseconds(200))
            .WithLeaseConfiguration(TimeSpan.FromSeconds(1), TimeSpan.FromSeconds(10), TimeSpan.FromSeconds(2))
            .Build()
        )
        done(host.StartAsync())
        return host

    def owners(self):
        return set(query(self.leases, "SELECT VALUE c.Owner FROM c WHERE IS_STRING(c.Owner)"))

    def wait(self, what, is_done):
        deadline = time.monotonic() + 30
        while not is_done():
            assert time.monotonic() < deadline, f"{what}; seen: {sorted(self.seen)}; owners: {self.owners()}"
            time.sleep(0.1)

    def wait_for(self, ids):
        self.wait(f"not all of {ids} were seen", lambda: set(self.seen) >= set(ids))


@check("processor", "latest versions: two hosts share the leases")
def two_hosts(context):
    fleet = Fleet(context.container())
    fill(fleet.container, 0, 20)
    first = fleet.start("first")
    fleet.wait_for(range(20))
    second = fleet.start("second")
    fleet.wait("one host has all leases", lambda: fleet.owners() == {"first", "second"})
    fill(fleet.container, 20, 60)
    fleet.wait_for(range(60))
    done(first.StopAsync())
    done(second.StopAsync())


@check("processor", "a host goes on where the last one stopped")
def resumes(context):
    fleet = Fleet(context.container())
    fill(fleet.container, 0, 20)
    first = fleet.start("first")
    fleet.wait_for(range(20))
    done(first.StopAsync())
    fleet.seen.clear()
    fill(fleet.container, 20, 40)
    second = fleet.start("second")
    fleet.wait_for(range(20, 40))
    done(second.StopAsync())
    equal(sorted(fleet.seen), list(range(20, 40)))


if not hasattr(ChangeFeedMode, "AllVersionsAndDeletes"):
    not_offered("processor", "all versions and deletes")
