//! Query plans, for clients that merge the rows of several ranges themselves.

use serde_json::{Value, json};

use super::Asked;
use crate::{
    gateway::{
        call::Call,
        protocol::{Header, Response, body::Payload},
    },
    model::{charge, epk::EpkRange, error::Result, path::PropertyPath},
    query::key_ranges,
    router::ContainerRoute,
    sql::{self, Features, Query},
};

/// Answers how to run a query on the ranges of a container.
pub async fn sdk_plan(call: &Call<'_>, db: &str, coll: &str, payload: Payload) -> Result<Response> {
    let container = call.container(db, coll)?;
    let asked = Asked::read(call, payload).await?;
    let query = asked.parse(call, &container.computed)?;
    let definition = &container.container.definition.partition_key;
    let paths: Vec<String> = definition
        .paths
        .iter()
        .map(PropertyPath::as_str)
        .map(str::to_owned)
        .collect();
    let features = call
        .header(Header::SupportedQueryFeatures)
        .map(Features::parse);
    let planned =
        sql::sdk_plan(&asked.text, &asked.parameters, &paths).and_then(|plan| match &features {
            Some(features) => plan.check(features).map(|()| plan),
            None => Ok(plan),
        });
    let ranges = query_ranges(&container, &query);
    let answer = match planned {
        Ok(plan) => plan.render(ranges),
        // Where one range has everything there is nothing to merge: it answers whole.
        Err(_) if container.shards.len() == 1 => sql::SdkPlan::as_it_is().render(ranges),
        Err(refusal) => return Err(refusal),
    };
    let mut response = Response::json(200, &answer, charge::CATALOG_READ);
    response
        .header(
            Header::AltContentPath,
            container.name_path.clone().into_bytes(),
        )
        .header(Header::ContentPath, container.rid_text.clone().into_bytes());
    Ok(response)
}

/// Where the query must be sent, as sorted ranges in hex.
fn query_ranges(container: &ContainerRoute, query: &Query) -> Value {
    let ranges = key_ranges(container, query).filter(|ranges| !ranges.is_empty());
    let Some(ranges) = ranges else {
        return json!([range(&EpkRange::full())]);
    };
    ranges.iter().map(range).collect()
}

fn range(keys: &EpkRange) -> Value {
    if keys.max == keys.min.successor() {
        let point = keys.min.to_hex();
        return json!({"min": point, "max": point, "isMinInclusive": true, "isMaxInclusive": true});
    }
    json!({
        "min": keys.min.to_hex(),
        "max": keys.max.to_hex(),
        "isMinInclusive": true,
        "isMaxInclusive": false,
    })
}
