//! The names of all headers, in lower case as HTTP/2 has them.
//!
//! One place for the spelling, used by server and client alike. Names are all there is here; what
//! their values mean is next door.

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $text;)*

        #[cfg(test)]
        pub(super) const ALL: &[&str] = &[$($name,)*];
    };
}

names! {
    /// The token: [`crate::auth`].
    AUTHORIZATION = "authorization";
    /// The date that is signed.
    X_MS_DATE = "x-ms-date";
    /// The date that is signed when there is no `x-ms-date`.
    DATE = "date";
    /// The API version the client was written for.
    VERSION = "x-ms-version";
    /// The type of the body.
    CONTENT_TYPE = "content-type";
    /// What the client wants back: [`super::Prefer`].
    PREFER = "prefer";
    /// Only if the resource is at this etag.
    IF_MATCH = "if-match";
    /// Only if the resource is not at this etag; in a feed, from there on.
    IF_NONE_MATCH = "if-none-match";
    /// In a feed, from that time on.
    IF_MODIFIED_SINCE = "if-modified-since";
    /// Asks for a change feed.
    A_IM = "a-im";
    /// The form of all-versions changes.
    CHANGE_FEED_WIRE_FORMAT = "x-ms-cosmos-changefeed-wire-format-version";
    /// The etag of an item, or the position of a feed page.
    ETAG = "etag";

    /// The value of the partition key, as a JSON array.
    PARTITION_KEY = "x-ms-documentdb-partitionkey";
    /// The physical partition, in requests and answers.
    PARTITION_KEY_RANGE_ID = "x-ms-documentdb-partitionkeyrangeid";
    /// What the bounds below are.
    READ_KEY_TYPE = "x-ms-read-key-type";
    /// The first effective partition key.
    START_EPK = "x-ms-start-epk";
    /// The effective partition key to stop before.
    END_EPK = "x-ms-end-epk";
    /// The container the client believes it talks to.
    INTENDED_COLLECTION_RID = "x-ms-cosmos-intended-collection-rid";

    /// Create or replace.
    IS_UPSERT = "x-ms-documentdb-is-upsert";
    /// The body is a query.
    IS_QUERY = "x-ms-documentdb-isquery";
    /// The body is a query of which only the plan is wanted.
    IS_QUERY_PLAN = "x-ms-cosmos-is-query-plan-request";
    /// The body is a batch.
    IS_BATCH = "x-ms-cosmos-is-batch-request";
    /// All or nothing.
    BATCH_ATOMIC = "x-ms-cosmos-batch-atomic";
    /// One failure does not stop the rest.
    BATCH_CONTINUE_ON_ERROR = "x-ms-cosmos-batch-continue-on-error";
    /// In the order given.
    BATCH_ORDERED = "x-ms-cosmos-batch-ordered";

    /// The page size, or -1.
    MAX_ITEM_COUNT = "x-ms-max-item-count";
    /// Where the next page starts.
    CONTINUATION = "x-ms-continuation";
    /// How long that may be.
    CONTINUATION_LIMIT_KB = "x-ms-documentdb-responsecontinuationtokenlimitinkb";
    /// The query may read all partitions.
    ENABLE_CROSS_PARTITION = "x-ms-documentdb-query-enablecrosspartition";
    /// The query may read items it has no index for.
    ENABLE_SCAN = "x-ms-documentdb-query-enable-scan";
    /// The query may read partitions at the same time.
    PARALLELIZE_CROSS_PARTITION = "x-ms-documentdb-query-parallelizecrosspartitionquery";
    /// Whether the client goes on after this page.
    IS_CONTINUATION_EXPECTED = "x-ms-documentdb-query-iscontinuationexpected";
    /// What the client can merge.
    SUPPORTED_QUERY_FEATURES = "x-ms-cosmos-supported-query-features";
    /// The version of the plan.
    QUERY_VERSION = "x-ms-cosmos-query-version";
    /// Run the query in one partition without a plan if that will do.
    OPTIMISTIC_DIRECT_EXECUTE = "x-ms-cosmos-query-optimisticdirectexecute";
    /// Asks for [`QUERY_METRICS`].
    POPULATE_QUERY_METRICS = "x-ms-documentdb-populatequerymetrics";
    /// Asks for [`INDEX_UTILIZATION`], in base64.
    POPULATE_INDEX_METRICS = "x-ms-cosmos-populateindexmetrics";
    /// Asks for [`INDEX_UTILIZATION`], percent-encoded.
    POPULATE_INDEX_METRICS_V2 = "x-ms-cosmos-populateindexmetrics-v2";
    /// One id for all requests of a query.
    CORRELATED_ACTIVITY_ID = "x-ms-cosmos-correlated-activityid";
    /// The forms of JSON the client reads.
    SUPPORTED_SERIALIZATION_FORMATS = "x-ms-cosmos-supported-serialization-formats";
    /// The form of JSON the client wants.
    CONTENT_SERIALIZATION_FORMAT = "x-ms-documentdb-content-serialization-format";

    /// What must have been seen, and what has been: [`crate::session`].
    SESSION_TOKEN = "x-ms-session-token";
    /// How fresh a read must be.
    CONSISTENCY_LEVEL = "x-ms-consistency-level";
    /// The same, in newer words.
    READ_CONSISTENCY_STRATEGY = "x-ms-cosmos-read-consistency-strategy";
    /// Writes may go to any region.
    ALLOW_TENTATIVE_WRITES = "x-ms-cosmos-allow-tentative-writes";
    /// How important the request is.
    PRIORITY_LEVEL = "x-ms-cosmos-priority-level";
    /// Which budget pays.
    THROUGHPUT_BUCKET = "x-ms-cosmos-throughput-bucket";
    /// Answers of 449 are wanted as they are.
    NO_RETRY_449 = "x-ms-noretry-449";
    /// The client can use a proxy we do not have.
    USE_THIN_CLIENT = "x-ms-cosmos-use-thinclient";
    /// What the client understands, as bits.
    SDK_SUPPORTED_CAPABILITIES = "x-ms-cosmos-sdk-supportedcapabilities";

    /// Triggers to run before the write.
    PRE_TRIGGER_INCLUDE = "x-ms-documentdb-pre-trigger-include";
    /// Triggers not to run before the write.
    PRE_TRIGGER_EXCLUDE = "x-ms-documentdb-pre-trigger-exclude";
    /// Triggers to run after the write.
    POST_TRIGGER_INCLUDE = "x-ms-documentdb-post-trigger-include";
    /// Triggers not to run after the write.
    POST_TRIGGER_EXCLUDE = "x-ms-documentdb-post-trigger-exclude";
    /// Whether to index the item.
    INDEXING_DIRECTIVE = "x-ms-indexing-directive";
    /// Return what a script logs.
    SCRIPT_ENABLE_LOGGING = "x-ms-documentdb-script-enable-logging";
    /// What a script logged.
    SCRIPT_LOG_RESULTS = "x-ms-documentdb-script-log-results";

    /// Throughput of a new database or container.
    OFFER_THROUGHPUT = "x-ms-offer-throughput";
    /// The same, scaling by itself.
    OFFER_AUTOPILOT_SETTINGS = "x-ms-cosmos-offer-autopilot-settings";
    /// From fixed throughput to scaling.
    MIGRATE_OFFER_TO_AUTOPILOT = "x-ms-cosmos-migrate-offer-to-autopilot";
    /// From scaling to fixed throughput.
    MIGRATE_OFFER_TO_MANUAL = "x-ms-cosmos-migrate-offer-to-manual-throughput";
    /// The least throughput there can be.
    MIN_THROUGHPUT = "x-ms-cosmos-min-throughput";
    /// Whether a change of throughput is running.
    OFFER_REPLACE_PENDING = "x-ms-offer-replace-pending";
    /// How long a resource token lives.
    EXPIRY_SECONDS = "x-ms-documentdb-expiry-seconds";
    /// Asks for [`RESOURCE_QUOTA`] and [`RESOURCE_USAGE`].
    POPULATE_QUOTA_INFO = "x-ms-documentdb-populatequotainfo";
    /// Asks for sizes by partition in the body of a container.
    POPULATE_PARTITION_STATISTICS = "x-ms-documentdb-populatepartitionstatistics";

    /// Beyond the protocol: only changes of items that meet this condition.
    FEED_WHERE = "x-headwater-feed-where";
    /// Beyond the protocol: only these parts of items in the change feed.
    FEED_SELECT = "x-headwater-feed-select";
    /// Beyond the protocol: only these kinds of change.
    FEED_OPS = "x-headwater-feed-ops";
    /// Beyond the protocol: only changes of the values at these paths.
    FEED_CHANGED = "x-headwater-feed-changed";
    /// Beyond the protocol: whether changes come with the item before them, where it is kept.
    FEED_PREVIOUS = "x-headwater-feed-previous";
    /// Beyond the protocol: `oldest` starts all versions at the oldest change that is kept.
    FEED_START = "x-headwater-feed-start";
    /// Beyond the protocol, in a refusal: the oldest position from which all versions are kept.
    FEED_OLDEST = "x-headwater-feed-oldest";
    /// Beyond the protocol, in a refusal: an upper bound on the LSNs between the position and the oldest kept one.
    FEED_MISSING = "x-headwater-feed-missing";

    /// The id of the request, in requests and answers.
    ACTIVITY_ID = "x-ms-activity-id";
    /// What it cost.
    REQUEST_CHARGE = "x-ms-request-charge";
    /// What makes one status different from another of the same number.
    SUBSTATUS = "x-ms-substatus";
    /// When to try again.
    RETRY_AFTER_MS = "x-ms-retry-after-ms";
    /// How many items the body has.
    ITEM_COUNT = "x-ms-item-count";
    /// The newest position of the partition.
    LSN = "lsn";
    /// The position of the item.
    ITEM_LSN = "x-ms-item-lsn";
    /// The newest position here.
    LOCAL_LSN = "x-ms-cosmos-llsn";
    /// The position of the item here.
    ITEM_LOCAL_LSN = "x-ms-cosmos-item-llsn";
    /// The newest position a majority has.
    QUORUM_ACKED_LSN = "x-ms-quorum-acked-lsn";
    /// The same, here.
    QUORUM_ACKED_LOCAL_LSN = "x-ms-cosmos-quorum-acked-llsn";
    /// The newest position all regions have.
    GLOBAL_COMMITTED_LSN = "x-ms-global-committed-lsn";
    /// The partition, by another name.
    INTERNAL_PARTITION_ID = "x-ms-cosmos-internal-partition-id";
    /// The partition, by a third name.
    PHYSICAL_PARTITION_ID = "x-ms-cosmos-physical-partition-id";
    /// The owner's link by names; without it clients keep no session.
    ALT_CONTENT_PATH = "x-ms-alt-content-path";
    /// The owner's resource id.
    CONTENT_PATH = "x-ms-content-path";
    /// What the container may hold.
    RESOURCE_QUOTA = "x-ms-resource-quota";
    /// What the container holds.
    RESOURCE_USAGE = "x-ms-resource-usage";
    /// How far a change of index has come, in percent.
    INDEX_TRANSFORMATION_PROGRESS = "x-ms-documentdb-collection-index-transformation-progress";
    /// What a query did.
    QUERY_METRICS = "x-ms-documentdb-query-metrics";
    /// Which indexes a query used.
    INDEX_UTILIZATION = "x-ms-cosmos-index-utilization";
    /// How a query ran, for resuming sorted ones.
    QUERY_EXECUTION_INFO = "x-ms-cosmos-query-execution-info";
    /// Whether a delete by partition key is under way.
    PARTITION_KEY_DELETE_PENDING = "x-ms-cosmos-is-partition-key-delete-pending";
    /// The version of the storage schema.
    SCHEMA_VERSION = "x-ms-schemaversion";
    /// The version of the server, as a gateway.
    GATEWAY_VERSION = "x-ms-gatewayversion";
    /// The version of the server.
    SERVICE_VERSION = "x-ms-serviceversion";
    /// When the partition last changed its role.
    LAST_STATE_CHANGE = "x-ms-last-state-change-utc";
    /// Regions besides the writing one.
    NUMBER_OF_READ_REGIONS = "x-ms-number-of-read-regions";
    /// Replicas a write waits for.
    CURRENT_WRITE_QUORUM = "x-ms-current-write-quorum";
    /// Replicas there are.
    CURRENT_REPLICA_SET_SIZE = "x-ms-current-replica-set-size";
    /// The role of the replica.
    XP_ROLE = "x-ms-xp-role";
    /// The request, as the transport numbers it.
    TRANSPORT_REQUEST_ID = "x-ms-transport-request-id";
    /// How long the answer took.
    REQUEST_DURATION_MS = "x-ms-request-duration-ms";
    /// Media the account may hold, of old.
    MAX_MEDIA_STORAGE_MB = "x-ms-max-media-storage-usage-mb";
    /// Media the account holds, of old.
    MEDIA_STORAGE_MB = "x-ms-media-storage-usage-mb";
}
