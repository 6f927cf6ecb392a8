//! Point reads of 1 KB items that all nodes answer, each from its own replica.

use serde_json::json;

use super::members::MeasuredCluster;
use crate::bench::account::Account;
use crate::bench::context::CaseContext;
use crate::bench::measure::{Compared, measure_all};
use crate::bench::scripts::{Cargo, Due, PointReads};
use crate::model::error::Result;

const CONTAINER: &str = "reads";

pub async fn run(context: &CaseContext<'_>) -> Result<()> {
    let items = context.items;
    let node = context.bench.start_node("read-solo").await?;
    let cluster = MeasuredCluster::start(&context.bench, "read", &[]).await?;
    prepare(&node, CONTAINER, items).await?;
    let account = cluster.account();
    prepare(&account, CONTAINER, items).await?;
    cluster.alike().await?;
    let token = account.session_token(CONTAINER).await?;
    let session = ("x-ms-session-token", token);
    let eventual = ("x-ms-consistency-level", "Eventual".to_owned());
    for (name, header) in [
        ("three nodes, eventual", eventual),
        ("three nodes, session with a token", session),
    ] {
        let compared = Compared::rounds(context.rounds, async |_| {
            let (signer, connections) = (&context.bench.signer, context.connections);
            let with = [header.clone()];
            let scripts = PointReads::spread_with(signer, CONTAINER, items, connections, &with);
            let alone = context
                .reads(&node.server, CONTAINER, items, connections)
                .await?;
            let together = measure_all(&cluster.servers(), scripts, context.extent).await?;
            Ok((alone, together))
        })
        .await?;
        context
            .case("read")
            .rates(("one node", name), &compared, None);
    }
    Ok(())
}

/// Makes a container with all the items.
pub async fn prepare(account: &Account, container: &'static str, items: u32) -> Result<()> {
    account.create_database().await?;
    account.create_container(container, &json!({})).await?;
    let cargo = Cargo::new(container, 0, items, Due::Inherit);
    account.load(&cargo).await.map(drop)
}
