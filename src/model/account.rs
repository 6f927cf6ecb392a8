//! The account: what `GET /` tells a client about this deployment.

use serde_json::{Value, json};

use super::consistency::Consistency;

/// The resource type that the signature of an order on the health port covers; its link is the
/// order's path.
pub const ORDER_RESOURCE_TYPE: &str = "bolide";

/// How stale bounded staleness may be, in writes.
pub const STALENESS_WRITES_MAX: u32 = 100;
/// How stale bounded staleness may be, in seconds.
pub const STALENESS_SECONDS_MAX: u32 = 5;

/// Limits that clients with their own query planner ask for: text holding JSON, as .NET wants it.
const QUERY_ENGINE_CONFIGURATION: &str =
    r#"{"maxSqlQueryInputLength":262144,"maxJoinsPerSqlQuery":5}"#;

/// The body of `GET /`.
///
/// `endpoint` (`scheme://host:port/`) replaces the address that the user typed for all later calls, so it must be one
/// that the caller can reach. `id` must not be `localhost`, or the JavaScript client reads the account before every call.
pub fn account_json(id: &str, endpoint: &str, region: &str, consistency: Consistency) -> Value {
    let locations = json!([{"name": region, "databaseAccountEndpoint": endpoint}]);
    let mut consistency_policy = json!({"defaultConsistencyLevel": consistency.name()});
    if consistency == Consistency::BoundedStaleness
        && let Some(policy) = consistency_policy.as_object_mut()
    {
        policy.insert("maxStalenessPrefix".to_owned(), STALENESS_WRITES_MAX.into());
        policy.insert(
            "maxStalenessIntervalInSeconds".to_owned(),
            STALENESS_SECONDS_MAX.into(),
        );
    }
    json!({
        "_self": "",
        "id": id,
        "_rid": format!("{id}.documents.azure.com"),
        "media": "//media/",
        "addresses": "//addresses/",
        "_dbs": "//dbs/",
        "writableLocations": locations.clone(),
        "readableLocations": locations,
        "enableMultipleWriteLocations": false,
        "continuousBackupEnabled": false,
        "enableNRegionSynchronousCommit": false,
        "enablePerPartitionFailoverBehavior": false,
        "disableCrossRegionalHedging": false,
        "userReplicationPolicy": {"asyncReplication": false, "minReplicaSetSize": 1, "maxReplicasetSize": 4},
        "userConsistencyPolicy": consistency_policy,
        "systemReplicationPolicy": {"minReplicaSetSize": 1, "maxReplicasetSize": 4},
        "readPolicy": {"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
        "queryEngineConfiguration": QUERY_ENGINE_CONFIGURATION,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body of the protocol page, word for word.
    const EXPECTED: &str = r#"{
      "_self":"", "id":"ttldb", "_rid":"ttldb.documents.azure.com",
      "media":"//media/", "addresses":"//addresses/", "_dbs":"//dbs/",
      "writableLocations":[{"name":"South Central US","databaseAccountEndpoint":"http://127.0.0.1:8081/"}],
      "readableLocations":[{"name":"South Central US","databaseAccountEndpoint":"http://127.0.0.1:8081/"}],
      "enableMultipleWriteLocations":false, "continuousBackupEnabled":false, "enableNRegionSynchronousCommit":false,
      "enablePerPartitionFailoverBehavior":false, "disableCrossRegionalHedging":false,
      "userReplicationPolicy":{"asyncReplication":false,"minReplicaSetSize":1,"maxReplicasetSize":4},
      "userConsistencyPolicy":{"defaultConsistencyLevel":"Session"},
      "systemReplicationPolicy":{"minReplicaSetSize":1,"maxReplicasetSize":4},
      "readPolicy":{"primaryReadCoefficient":1,"secondaryReadCoefficient":1},
      "queryEngineConfiguration":"{\"maxSqlQueryInputLength\":262144,\"maxJoinsPerSqlQuery\":5}"
    }"#;

    #[test]
    fn the_account_is_as_the_protocol_has_it() {
        let account = account_json(
            "ttldb",
            "http://127.0.0.1:8081/",
            "South Central US",
            Consistency::Session,
        );
        assert_eq!(account, serde_json::from_str::<Value>(EXPECTED).unwrap());
    }

    #[test]
    fn the_query_engine_configuration_is_text_holding_json() {
        let account = account_json("a", "https://node:8081/", "West US", Consistency::Strong);
        let text = account["queryEngineConfiguration"].as_str().unwrap();
        assert!(serde_json::from_str::<Value>(text).unwrap().is_object());
        assert_eq!(
            account["userConsistencyPolicy"],
            json!({"defaultConsistencyLevel": "Strong"})
        );
    }

    #[test]
    fn bounded_staleness_names_its_bounds() {
        let level = Consistency::BoundedStaleness;
        let account = account_json("a", "https://node:8081/", "West US", level);
        assert_eq!(
            account["userConsistencyPolicy"],
            json!({
                "defaultConsistencyLevel": "BoundedStaleness",
                "maxStalenessPrefix": STALENESS_WRITES_MAX,
                "maxStalenessIntervalInSeconds": STALENESS_SECONDS_MAX,
            })
        );
    }
}
