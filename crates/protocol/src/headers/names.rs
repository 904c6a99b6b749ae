//! The names of all headers, in lower case as in HTTP/2.
//!
//! Server and client share these constants. The parent module parses the values.

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $text;)*

        #[cfg(test)]
        pub(super) const ALL: &[&str] = &[$($name,)*];
    };
}

names! {
    /// The authorization token; see [`crate::auth`].
    AUTHORIZATION = "authorization";
    /// The signed date.
    X_MS_DATE = "x-ms-date";
    /// The signed date of requests without `x-ms-date`.
    DATE = "date";
    /// The API version the client was written for.
    VERSION = "x-ms-version";
    /// The media type of the body.
    CONTENT_TYPE = "content-type";
    /// The client's preferences; see [`super::Prefer`].
    PREFER = "prefer";
    /// Runs only if the resource has this etag.
    IF_MATCH = "if-match";
    /// Runs only if the resource does not have this etag; in a feed, the position to read from.
    IF_NONE_MATCH = "if-none-match";
    /// The time from which to read a feed.
    IF_MODIFIED_SINCE = "if-modified-since";
    /// Requests a change feed.
    A_IM = "a-im";
    /// The format of all-versions changes.
    CHANGE_FEED_WIRE_FORMAT = "x-ms-cosmos-changefeed-wire-format-version";
    /// The etag of an item, or the position of a feed page.
    ETAG = "etag";

    /// The value of the partition key, as a JSON array.
    PARTITION_KEY = "x-ms-documentdb-partitionkey";
    /// The physical partition, in requests and responses.
    PARTITION_KEY_RANGE_ID = "x-ms-documentdb-partitionkeyrangeid";
    /// The kind of the bounds below.
    READ_KEY_TYPE = "x-ms-read-key-type";
    /// The first effective partition key of the range.
    START_EPK = "x-ms-start-epk";
    /// The effective partition key at which the range ends (exclusive).
    END_EPK = "x-ms-end-epk";
    /// The resource id of the container that the client has cached.
    INTENDED_COLLECTION_RID = "x-ms-cosmos-intended-collection-rid";

    /// Create or replace the item.
    IS_UPSERT = "x-ms-documentdb-is-upsert";
    /// The body is a query.
    IS_QUERY = "x-ms-documentdb-isquery";
    /// The body is a query, and the client requests only its plan.
    IS_QUERY_PLAN = "x-ms-cosmos-is-query-plan-request";
    /// The body is a batch.
    IS_BATCH = "x-ms-cosmos-is-batch-request";
    /// Run all operations of the batch, or none.
    BATCH_ATOMIC = "x-ms-cosmos-batch-atomic";
    /// Continue with the remaining operations after a failure.
    BATCH_CONTINUE_ON_ERROR = "x-ms-cosmos-batch-continue-on-error";
    /// Run the operations in the given order.
    BATCH_ORDERED = "x-ms-cosmos-batch-ordered";

    /// The page size, or -1.
    MAX_ITEM_COUNT = "x-ms-max-item-count";
    /// The position where the next page starts.
    CONTINUATION = "x-ms-continuation";
    /// The maximum length of the continuation.
    CONTINUATION_LIMIT_KB = "x-ms-documentdb-responsecontinuationtokenlimitinkb";
    /// The query may read all partitions.
    ENABLE_CROSS_PARTITION = "x-ms-documentdb-query-enablecrosspartition";
    /// The query may read items without using an index.
    ENABLE_SCAN = "x-ms-documentdb-query-enable-scan";
    /// The query may read partitions in parallel.
    PARALLELIZE_CROSS_PARTITION = "x-ms-documentdb-query-parallelizecrosspartitionquery";
    /// Whether the client continues after this page.
    IS_CONTINUATION_EXPECTED = "x-ms-documentdb-query-iscontinuationexpected";
    /// The query features that the client can merge.
    SUPPORTED_QUERY_FEATURES = "x-ms-cosmos-supported-query-features";
    /// The version of the query plan.
    QUERY_VERSION = "x-ms-cosmos-query-version";
    /// Run the query in one partition without a plan if possible.
    OPTIMISTIC_DIRECT_EXECUTE = "x-ms-cosmos-query-optimisticdirectexecute";
    /// Requests [`QUERY_METRICS`].
    POPULATE_QUERY_METRICS = "x-ms-documentdb-populatequerymetrics";
    /// Requests [`INDEX_UTILIZATION`], in base64.
    POPULATE_INDEX_METRICS = "x-ms-cosmos-populateindexmetrics";
    /// Requests [`INDEX_UTILIZATION`], percent-encoded.
    POPULATE_INDEX_METRICS_V2 = "x-ms-cosmos-populateindexmetrics-v2";
    /// The id shared by all requests of a query.
    CORRELATED_ACTIVITY_ID = "x-ms-cosmos-correlated-activityid";
    /// The encodings of JSON that the client can read.
    SUPPORTED_SERIALIZATION_FORMATS = "x-ms-cosmos-supported-serialization-formats";
    /// The encoding of JSON that the client requests.
    CONTENT_SERIALIZATION_FORMAT = "x-ms-documentdb-content-serialization-format";

    /// The session's progress, in requests and responses; see [`crate::session`].
    SESSION_TOKEN = "x-ms-session-token";
    /// The consistency level of a read.
    CONSISTENCY_LEVEL = "x-ms-consistency-level";
    /// The consistency of a read, in the newer vocabulary.
    READ_CONSISTENCY_STRATEGY = "x-ms-cosmos-read-consistency-strategy";
    /// Writes may go to any region.
    ALLOW_TENTATIVE_WRITES = "x-ms-cosmos-allow-tentative-writes";
    /// The priority of the request.
    PRIORITY_LEVEL = "x-ms-cosmos-priority-level";
    /// The throughput bucket that is charged.
    THROUGHPUT_BUCKET = "x-ms-cosmos-throughput-bucket";
    /// The client wants responses with 449 unchanged.
    NO_RETRY_449 = "x-ms-noretry-449";
    /// The client supports the thin-client proxy, which Headwater does not have.
    USE_THIN_CLIENT = "x-ms-cosmos-use-thinclient";
    /// The client's capabilities, as bits.
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

    /// The throughput of a new database or container.
    OFFER_THROUGHPUT = "x-ms-offer-throughput";
    /// The autoscale throughput of a new database or container.
    OFFER_AUTOPILOT_SETTINGS = "x-ms-cosmos-offer-autopilot-settings";
    /// Migrate from manual to autoscale throughput.
    MIGRATE_OFFER_TO_AUTOPILOT = "x-ms-cosmos-migrate-offer-to-autopilot";
    /// Migrate from autoscale to manual throughput.
    MIGRATE_OFFER_TO_MANUAL = "x-ms-cosmos-migrate-offer-to-manual-throughput";
    /// The minimum throughput allowed.
    MIN_THROUGHPUT = "x-ms-cosmos-min-throughput";
    /// Whether a change of throughput is in progress.
    OFFER_REPLACE_PENDING = "x-ms-offer-replace-pending";
    /// The lifetime of a resource token.
    EXPIRY_SECONDS = "x-ms-documentdb-expiry-seconds";
    /// Requests [`RESOURCE_QUOTA`] and [`RESOURCE_USAGE`].
    POPULATE_QUOTA_INFO = "x-ms-documentdb-populatequotainfo";
    /// Requests sizes by partition in the body of a container.
    POPULATE_PARTITION_STATISTICS = "x-ms-documentdb-populatepartitionstatistics";

    /// Extension: only changes of items that meet this condition.
    FEED_WHERE = "x-headwater-feed-where";
    /// Extension: only these parts of items in the change feed.
    FEED_SELECT = "x-headwater-feed-select";
    /// Extension: only these kinds of change.
    FEED_OPS = "x-headwater-feed-ops";
    /// Extension: only changes of the values at these paths.
    FEED_CHANGED = "x-headwater-feed-changed";
    /// Extension: whether changes include the previous version of the item, where it is retained.
    FEED_PREVIOUS = "x-headwater-feed-previous";
    /// Extension: `oldest` starts all versions at the oldest retained change.
    FEED_START = "x-headwater-feed-start";
    /// Extension, in an error response: the oldest position from which all versions are retained.
    FEED_OLDEST = "x-headwater-feed-oldest";
    /// Extension, in an error response: an upper bound on the LSNs between the position and the oldest retained one.
    FEED_MISSING = "x-headwater-feed-missing";

    /// The id of the request, in requests and responses.
    ACTIVITY_ID = "x-ms-activity-id";
    /// The request charge.
    REQUEST_CHARGE = "x-ms-request-charge";
    /// Distinguishes causes that share an HTTP status.
    SUBSTATUS = "x-ms-substatus";
    /// How long to wait before a retry.
    RETRY_AFTER_MS = "x-ms-retry-after-ms";
    /// The number of items in the body.
    ITEM_COUNT = "x-ms-item-count";
    /// The newest LSN of the partition.
    LSN = "lsn";
    /// The LSN of the item.
    ITEM_LSN = "x-ms-item-lsn";
    /// The newest LSN of this replica.
    LOCAL_LSN = "x-ms-cosmos-llsn";
    /// The LSN of the item on this replica.
    ITEM_LOCAL_LSN = "x-ms-cosmos-item-llsn";
    /// The newest LSN acknowledged by a majority.
    QUORUM_ACKED_LSN = "x-ms-quorum-acked-lsn";
    /// The newest quorum-acknowledged LSN on this replica.
    QUORUM_ACKED_LOCAL_LSN = "x-ms-cosmos-quorum-acked-llsn";
    /// The newest LSN committed in all regions.
    GLOBAL_COMMITTED_LSN = "x-ms-global-committed-lsn";
    /// The partition, under an alternative name.
    INTERNAL_PARTITION_ID = "x-ms-cosmos-internal-partition-id";
    /// The partition, under another alternative name.
    PHYSICAL_PARTITION_ID = "x-ms-cosmos-physical-partition-id";
    /// The owner's link by names; without it clients keep no session tokens.
    ALT_CONTENT_PATH = "x-ms-alt-content-path";
    /// The owner's resource id.
    CONTENT_PATH = "x-ms-content-path";
    /// The limits of the container.
    RESOURCE_QUOTA = "x-ms-resource-quota";
    /// The usage of the container.
    RESOURCE_USAGE = "x-ms-resource-usage";
    /// The progress of an index change, in percent.
    INDEX_TRANSFORMATION_PROGRESS = "x-ms-documentdb-collection-index-transformation-progress";
    /// Execution metrics of a query.
    QUERY_METRICS = "x-ms-documentdb-query-metrics";
    /// The indexes that a query used.
    INDEX_UTILIZATION = "x-ms-cosmos-index-utilization";
    /// How a query was executed, for resuming sorted ones.
    QUERY_EXECUTION_INFO = "x-ms-cosmos-query-execution-info";
    /// Whether a delete by partition key is in progress.
    PARTITION_KEY_DELETE_PENDING = "x-ms-cosmos-is-partition-key-delete-pending";
    /// The version of the storage schema.
    SCHEMA_VERSION = "x-ms-schemaversion";
    /// The version of the server in its role as a gateway.
    GATEWAY_VERSION = "x-ms-gatewayversion";
    /// The version of the server.
    SERVICE_VERSION = "x-ms-serviceversion";
    /// When the replica last changed its role.
    LAST_STATE_CHANGE = "x-ms-last-state-change-utc";
    /// The number of regions other than the write region.
    NUMBER_OF_READ_REGIONS = "x-ms-number-of-read-regions";
    /// The number of replicas that a write waits for.
    CURRENT_WRITE_QUORUM = "x-ms-current-write-quorum";
    /// The number of replicas.
    CURRENT_REPLICA_SET_SIZE = "x-ms-current-replica-set-size";
    /// The role of the replica.
    XP_ROLE = "x-ms-xp-role";
    /// The request's number on the transport.
    TRANSPORT_REQUEST_ID = "x-ms-transport-request-id";
    /// The duration of the request.
    REQUEST_DURATION_MS = "x-ms-request-duration-ms";
    /// The quota for media attachments, a legacy feature.
    MAX_MEDIA_STORAGE_MB = "x-ms-max-media-storage-usage-mb";
    /// The usage of media attachments, a legacy feature.
    MEDIA_STORAGE_MB = "x-ms-media-storage-usage-mb";
}
