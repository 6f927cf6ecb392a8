//! Point reads at the level strong beside those at the level session, at the leader and elsewhere.
//! What a strong read costs more is a round trip between nodes; how many it takes, the simulation
//! shows.

use super::members::{MeasuredCluster, NODES};
use super::reads::prepare;
use crate::bench::context::CaseContext;
use crate::bench::measure::{Compared, measure};
use crate::bench::scripts::PointReads;
use crate::model::error::Result;

const CONTAINER: &str = "strong";
/// The level that the account's clients read at unless they ask for less.
const SETTING: &str = "server.consistency=strong";

pub async fn run(context: &CaseContext<'_>) -> Result<()> {
    let (case, items) = (context.case("strong"), context.items);
    let settings = [SETTING.to_owned()];
    let cluster = MeasuredCluster::start(&context.bench, "strong", &settings).await?;
    prepare(&cluster.account(), CONTAINER, items).await?;
    cluster.alike().await?;
    let leader = cluster.leader().await?;
    let session = [("x-ms-consistency-level", "Session".to_owned())];
    let mut levels = [Compared::default(), Compared::default()];
    let mut nodes = Compared::default();
    for _ in 0..context.rounds {
        let scripts = |headers: &[(&'static str, String)]| {
            PointReads::spread_with(&context.bench.signer, CONTAINER, items, 1, headers)
        };
        let mut strong_reads = Vec::new();
        for (node, level) in [leader, (leader + 1) % NODES].into_iter().zip(&mut levels) {
            let server = cluster.server(node)?;
            let weak = measure(server, scripts(&session), context.extent).await?;
            let strong = measure(server, scripts(&[]), context.extent).await?;
            level.add(&weak, &strong);
            strong_reads.push(strong);
        }
        if let [local, forwarded] = strong_reads.as_slice() {
            nodes.add(local, forwarded);
        }
    }
    let [at_leader, at_other] = &levels;
    let names = ("session read at the leader", "strong read at the leader");
    case.latencies(names, at_leader, None);
    let names = ("session read elsewhere", "strong read elsewhere");
    case.latencies(names, at_other, None);
    let names = ("strong read at the leader", "strong read elsewhere");
    case.latencies(names, &nodes, Some(2.0));
    Ok(())
}
