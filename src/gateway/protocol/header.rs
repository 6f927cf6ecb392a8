//! The fields of requests and answers that the protocol defines, by name. A transport maps each to
//! what it sends: HTTP to a header.

macro_rules! headers {
    ($($header:ident = $name:literal;)*) => {
        /// A field of a request or an answer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Header {
            $($header,)*
        }

        impl Header {
            pub const ALL: &'static [Self] = &[$(Self::$header,)*];

            /// Returns the name of the header in HTTP.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$header => $name,)*
                }
            }
        }
    };
}

headers! {
    AIm = "a-im";
    ActivityId = "x-ms-activity-id";
    AltContentPath = "x-ms-alt-content-path";
    AutopilotSettings = "x-ms-cosmos-offer-autopilot-settings";
    BatchAtomic = "x-ms-cosmos-batch-atomic";
    BatchContinueOnError = "x-ms-cosmos-batch-continue-on-error";
    BatchRequest = "x-ms-cosmos-is-batch-request";
    ChangeFeedWireFormat = "x-ms-cosmos-changefeed-wire-format-version";
    ConsistencyLevel = "x-ms-consistency-level";
    ContentPath = "x-ms-content-path";
    ContentType = "content-type";
    Continuation = "x-ms-continuation";
    Date = "x-ms-date";
    EnableCrossPartition = "x-ms-documentdb-query-enablecrosspartition";
    EnableScan = "x-ms-documentdb-query-enable-scan";
    EndEpk = "x-ms-end-epk";
    Etag = "etag";
    GatewayVersion = "x-ms-gatewayversion";
    IfMatch = "if-match";
    IfModifiedSince = "if-modified-since";
    IfNoneMatch = "if-none-match";
    IndexTransformationProgress = "x-ms-documentdb-collection-index-transformation-progress";
    IndexUtilization = "x-ms-cosmos-index-utilization";
    IntendedContainerRid = "x-ms-cosmos-intended-collection-rid";
    IsQuery = "x-ms-documentdb-isquery";
    IsQueryGo = "x-ms-documentdb-query";
    IsUpsert = "x-ms-documentdb-is-upsert";
    ItemCount = "x-ms-item-count";
    LazyIndexingProgress = "x-ms-documentdb-collection-lazy-indexing-progress";
    Lsn = "lsn";
    MaxItemCount = "x-ms-max-item-count";
    MigrateToAutopilot = "x-ms-cosmos-migrate-offer-to-autopilot";
    MigrateToManual = "x-ms-cosmos-migrate-offer-to-manual-throughput";
    MinThroughput = "x-ms-cosmos-min-throughput";
    OfferThroughput = "x-ms-offer-throughput";
    PartitionKey = "x-ms-documentdb-partitionkey";
    PartitionKeyRangeId = "x-ms-documentdb-partitionkeyrangeid";
    PopulateIndexMetrics = "x-ms-cosmos-populateindexmetrics";
    PopulateIndexMetricsV2 = "x-ms-cosmos-populateindexmetrics-v2";
    PopulatePartitionStatistics = "x-ms-documentdb-populatepartitionstatistics";
    PopulateQueryMetrics = "x-ms-documentdb-populatequerymetrics";
    PopulateQuotaInfo = "x-ms-documentdb-populatequotainfo";
    PostTrigger = "x-ms-documentdb-post-trigger-include";
    PreTrigger = "x-ms-documentdb-pre-trigger-include";
    Prefer = "prefer";
    QueryExecutionInfo = "x-ms-cosmos-query-execution-info";
    QueryMetrics = "x-ms-documentdb-query-metrics";
    QueryPlan = "x-ms-cosmos-is-query-plan-request";
    ReadKeyType = "x-ms-read-key-type";
    RequestCharge = "x-ms-request-charge";
    ResourceQuota = "x-ms-resource-quota";
    ResourceUsage = "x-ms-resource-usage";
    RetryAfterMs = "x-ms-retry-after-ms";
    ServiceVersion = "x-ms-serviceversion";
    SessionToken = "x-ms-session-token";
    StartEpk = "x-ms-start-epk";
    Substatus = "x-ms-substatus";
    SupportedQueryFeatures = "x-ms-cosmos-supported-query-features";
    Version = "x-ms-version";
}
