//! What a query tells of itself in headers: its costs, and the indexes that it used or could have used.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::{
    gateway::{
        call::Call,
        protocol::{Header, Response},
    },
    query::{IndexUse, QueryPage, QueryWork},
    sql::Query,
};

/// Index metrics of more paths than this are cut: headers are small.
const PATHS_MAX: usize = 50;
/// Room for the metrics of a query.
const METRICS_BYTES: usize = 512;

/// Adds the headers that the client asks for.
pub fn add(
    call: &Call<'_>,
    response: &mut Response,
    query: &Query,
    page: &QueryPage,
    compiled: Duration,
    total: Duration,
) {
    if call.flag(Header::PopulateQueryMetrics) {
        let rows = (page.rows.len(), page.rows.bytes());
        response.header(
            Header::QueryMetrics,
            query_metrics(&page.work, rows, compiled, total),
        );
    }
    if call.flag(Header::PopulateIndexMetrics) {
        let metrics = index_metrics(&page.work.used).to_string();
        response.header(Header::IndexUtilization, STANDARD.encode(metrics));
    } else if call.flag(Header::PopulateIndexMetricsV2) {
        let metrics = index_metrics(&page.work.used).to_string();
        let encoded = utf8_percent_encode(&metrics, NON_ALPHANUMERIC).to_string();
        response.header(Header::IndexUtilization, encoded);
    }
    let descending = query.descending();
    if !descending.is_empty() {
        let info = json!({
            "reverseRidEnabled": false,
            "reverseIndexScan": descending.first() == Some(&true),
        });
        response.header(Header::QueryExecutionInfo, info.to_string());
    }
}

fn query_metrics(
    work: &QueryWork,
    (rows, row_bytes): (usize, usize),
    compiled: Duration,
    total: Duration,
) -> String {
    // The share of the items read that were of use; rows without any are of the index alone.
    let percent = match work.read {
        0 if rows == 0 => 0,
        0 => 100,
        read => ((rows as u64 * 100 + read as u64 / 2) / read as u64).min(100),
    };
    // SDKs ask for it with every query, so it is written in one go.
    let mut text = String::with_capacity(METRICS_BYTES);
    let written = write!(
        text,
        "totalExecutionTimeInMs={};queryCompileTimeInMs={};queryLogicalPlanBuildTimeInMs=0.00;queryPhysicalPlanBuildTimeInMs=0.00;\
         queryOptimizationTimeInMs=0.00;VMExecutionTimeInMs={};indexLookupTimeInMs=0.00;documentLoadTimeInMs=0.00;\
         systemFunctionExecuteTimeInMs=0.00;userFunctionExecuteTimeInMs=0.00;retrievedDocumentCount={};retrievedDocumentSize={};\
         outputDocumentCount={rows};outputDocumentSize={row_bytes};writeOutputTimeInMs=0.00;indexUtilizationRatio={}",
        Hundredths::of_ms(total),
        Hundredths::of_ms(compiled),
        Hundredths::of_ms(work.time),
        work.read,
        work.read_bytes,
        Hundredths(percent),
    );
    written.map_or_else(|_| String::new(), |()| text)
}

/// A number with two digits behind the point, without the detour over a fraction.
struct Hundredths(u64);

impl Hundredths {
    fn of_ms(time: Duration) -> Self {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self(micros.saturating_add(5) / 10)
    }
}

impl fmt::Display for Hundredths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

fn index_metrics(used: &IndexUse) -> Value {
    let single = |paths: &[String]| -> Vec<Value> {
        let entry = |path: &String| {
            json!({
                "FilterExpression": "",
                "IndexSpec": path,
                "FilterPreciseSet": true,
                "IndexPreciseSet": true,
                "IndexImpactScore": "High",
            })
        };
        paths.iter().take(PATHS_MAX).map(entry).collect()
    };
    let composite = |indexes: &[Vec<String>]| -> Vec<Value> {
        let entry = |columns: &Vec<String>| {
            json!({
                "IndexSpecs": columns,
                "IndexPreciseSet": true,
                "IndexImpactScore": "High",
            })
        };
        indexes.iter().take(PATHS_MAX).map(entry).collect()
    };
    json!({
        "UtilizedSingleIndexes": single(&used.utilized),
        "PotentialSingleIndexes": single(&used.potential),
        "UtilizedCompositeIndexes": composite(&used.utilized_composite),
        "PotentialCompositeIndexes": composite(&used.potential_composite),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_metrics_are_numbers() {
        let work = QueryWork {
            read: 4,
            read_bytes: 100,
            ..QueryWork::default()
        };
        let text = query_metrics(
            &work,
            (1, 20),
            Duration::from_micros(1_500),
            Duration::from_millis(7),
        );
        let pairs: Vec<(&str, f64)> = text
            .split(';')
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(name, value)| (name, value.parse().unwrap()))
            .collect();
        assert_eq!(pairs.len(), 16);
        for expected in [
            ("totalExecutionTimeInMs", 7.0),
            ("queryCompileTimeInMs", 1.5),
            ("retrievedDocumentCount", 4.0),
            ("outputDocumentSize", 20.0),
            ("indexUtilizationRatio", 0.25),
        ] {
            assert!(pairs.contains(&expected), "{expected:?} in {text}");
        }
    }
}
