//! Point reads at the level strong beside those at the level session, at the leader and elsewhere. What
//! a strong read costs more is a round trip between nodes; how many it takes, the simulation shows.

use super::Context;
use super::forward::leader_and_other;
use super::members::Cluster;
use super::reads::prepare;
use crate::bench::measure::{Compared, measure};
use crate::bench::report::Bar;
use crate::bench::scripts::PointReads;
use crate::model::error::Result;

const CASE: &str = "strong";
const CONTAINER: &str = "strong";
/// The level that the account's clients read at unless they ask for less.
const SETTING: &str = "server.consistency=strong";

pub async fn run(context: &Context<'_>) -> Result<()> {
    let items = context.options.items;
    let settings = [SETTING.to_owned()];
    let cluster = Cluster::start(&context.bench, "strong", &settings).await?;
    prepare(&cluster.account(), CONTAINER, items).await?;
    cluster.alike().await?;
    let (leader, other) = leader_and_other(&cluster).await?;
    let session = [("x-ms-consistency-level".to_owned(), "Session".to_owned())];
    let mut levels = [Compared::default(), Compared::default()];
    let mut places = Compared::default();
    for _ in 0..context.options.rounds {
        let scripts = |headers: &[(String, String)]| {
            PointReads::spread_with(&context.bench.signer, CONTAINER, items, 1, headers)
        };
        let mut strong_reads = Vec::new();
        for (node, level) in [leader, other].into_iter().zip(&mut levels) {
            let server = cluster.server(node)?;
            let weak = measure(server, scripts(&session), context.extent()).await?;
            let strong = measure(server, scripts(&[]), context.extent()).await?;
            level.add(&weak, &strong);
            strong_reads.push(strong);
        }
        if let [local, sent_on] = strong_reads.as_slice() {
            places.add(local, sent_on);
        }
    }
    let [at_leader, at_other] = &levels;
    let names = ("session read at the leader", "strong read at the leader");
    context.add_latencies(CASE, names, at_leader, Bar::None);
    let names = ("session read elsewhere", "strong read elsewhere");
    context.add_latencies(CASE, names, at_other, Bar::None);
    let names = ("strong read at the leader", "strong read elsewhere");
    context.add_latencies(CASE, names, &places, Bar::AtMost(2.0));
    Ok(())
}
