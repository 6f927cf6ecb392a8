//! The names of the protocol's headers, in one place.

use http::header::HeaderName;

macro_rules! header_names {
    ($($constant:ident = $text:literal;)*) => {
        $(pub const $constant: HeaderName = HeaderName::from_static($text);)*
    };
}

header_names! {
    ACTIVITY_ID = "x-ms-activity-id";
    ALT_CONTENT_PATH = "x-ms-alt-content-path";
    AUTOPILOT_SETTINGS = "x-ms-cosmos-offer-autopilot-settings";
    BATCH_ATOMIC = "x-ms-cosmos-batch-atomic";
    BATCH_CONTINUE_ON_ERROR = "x-ms-cosmos-batch-continue-on-error";
    BATCH_REQUEST = "x-ms-cosmos-is-batch-request";
    CHANGE_FEED_WIRE_FORMAT = "x-ms-cosmos-changefeed-wire-format-version";
    CONSISTENCY_LEVEL = "x-ms-consistency-level";
    CONTENT_PATH = "x-ms-content-path";
    CONTINUATION = "x-ms-continuation";
    DATE = "x-ms-date";
    ENABLE_CROSS_PARTITION = "x-ms-documentdb-query-enablecrosspartition";
    ENABLE_SCAN = "x-ms-documentdb-query-enable-scan";
    END_EPK = "x-ms-end-epk";
    GATEWAY_VERSION = "x-ms-gatewayversion";
    INDEX_UTILIZATION = "x-ms-cosmos-index-utilization";
    INDEX_TRANSFORMATION_PROGRESS = "x-ms-documentdb-collection-index-transformation-progress";
    INTENDED_CONTAINER_RID = "x-ms-cosmos-intended-collection-rid";
    IS_QUERY = "x-ms-documentdb-isquery";
    IS_QUERY_GO = "x-ms-documentdb-query";
    IS_UPSERT = "x-ms-documentdb-is-upsert";
    ITEM_COUNT = "x-ms-item-count";
    LAZY_INDEXING_PROGRESS = "x-ms-documentdb-collection-lazy-indexing-progress";
    LSN = "lsn";
    MAX_ITEM_COUNT = "x-ms-max-item-count";
    MIGRATE_TO_AUTOPILOT = "x-ms-cosmos-migrate-offer-to-autopilot";
    MIGRATE_TO_MANUAL = "x-ms-cosmos-migrate-offer-to-manual-throughput";
    MIN_THROUGHPUT = "x-ms-cosmos-min-throughput";
    OFFER_THROUGHPUT = "x-ms-offer-throughput";
    PARTITION_KEY = "x-ms-documentdb-partitionkey";
    PARTITION_KEY_RANGE_ID = "x-ms-documentdb-partitionkeyrangeid";
    POPULATE_INDEX_METRICS = "x-ms-cosmos-populateindexmetrics";
    POPULATE_INDEX_METRICS_V2 = "x-ms-cosmos-populateindexmetrics-v2";
    POPULATE_PARTITION_STATISTICS = "x-ms-documentdb-populatepartitionstatistics";
    POPULATE_QUERY_METRICS = "x-ms-documentdb-populatequerymetrics";
    POPULATE_QUOTA_INFO = "x-ms-documentdb-populatequotainfo";
    POST_TRIGGER = "x-ms-documentdb-post-trigger-include";
    PRE_TRIGGER = "x-ms-documentdb-pre-trigger-include";
    PREFER = "prefer";
    QUERY_EXECUTION_INFO = "x-ms-cosmos-query-execution-info";
    QUERY_METRICS = "x-ms-documentdb-query-metrics";
    QUERY_PLAN = "x-ms-cosmos-is-query-plan-request";
    READ_KEY_TYPE = "x-ms-read-key-type";
    REQUEST_CHARGE = "x-ms-request-charge";
    RESOURCE_QUOTA = "x-ms-resource-quota";
    RESOURCE_USAGE = "x-ms-resource-usage";
    RETRY_AFTER_MS = "x-ms-retry-after-ms";
    SERVICE_VERSION = "x-ms-serviceversion";
    SESSION_TOKEN = "x-ms-session-token";
    START_EPK = "x-ms-start-epk";
    SUBSTATUS = "x-ms-substatus";
    SUPPORTED_QUERY_FEATURES = "x-ms-cosmos-supported-query-features";
    VERSION = "x-ms-version";
    X_FORWARDED_HOST = "x-forwarded-host";
    X_FORWARDED_PROTO = "x-forwarded-proto";
    A_IM = "a-im";
}
