//! Point reads of 1 KB items that all nodes answer, each from its own replica.

use serde_json::json;

use super::Context;
use super::members::Cluster;
use crate::bench::account::Account;
use crate::bench::measure::{Compared, measure, measure_all};
use crate::bench::report::Bar;
use crate::bench::scripts::{Cargo, Due, PointReads};
use crate::model::error::Result;

const CASE: &str = "read";
const CONTAINER: &str = "reads";

pub async fn run(context: &Context<'_>) -> Result<()> {
    let items = context.options.items;
    let node = context.bench.start_node("read-solo").await?;
    let cluster = Cluster::start(&context.bench, "read", &[]).await?;
    prepare(&node, CONTAINER, items).await?;
    let account = cluster.account();
    prepare(&account, CONTAINER, items).await?;
    cluster.alike().await?;
    let token = account.session_token(CONTAINER).await?;
    let session = vec![("x-ms-session-token".to_owned(), token)];
    let eventual = vec![("x-ms-consistency-level".to_owned(), "Eventual".to_owned())];
    for (name, headers) in [
        ("three nodes, eventual", eventual),
        ("three nodes, session with a token", session),
    ] {
        let mut compared = Compared::default();
        for _ in 0..context.options.rounds {
            let (signer, connections) = (&context.bench.signer, context.options.connections);
            let scripts = |headers: &[(String, String)]| {
                PointReads::spread_with(signer, CONTAINER, items, connections, headers)
            };
            let alone = measure(&node.server, scripts(&[]), context.extent()).await?;
            let servers = cluster.servers();
            let together = measure_all(&servers, scripts(&headers), context.extent()).await?;
            compared.add(&alone, &together);
        }
        context.add_rates(CASE, ("one node", name), &compared, Bar::None);
    }
    Ok(())
}

/// A container with all the items.
pub async fn prepare(account: &Account, container: &'static str, items: u32) -> Result<()> {
    account.create_database().await?;
    account.create_container(container, &json!({})).await?;
    let cargo = Cargo::new(container, 0, items, Due::Inherit);
    account.load(&cargo).await.map(drop)
}
