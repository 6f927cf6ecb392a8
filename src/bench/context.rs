//! What the cases of a node and of a cluster share.

use std::cell::RefCell;
use std::time::Duration;

use super::item::Look;
use super::measure::{Extent, Measured, measure};
use super::node::Launcher;
use super::process::ServerProcess;
use super::report::{CaseReport, Report, Unit};
use super::scripts::{Creates, PointReads};
use crate::model::error::Result;

pub struct CaseContext<'a> {
    pub bench: Launcher,
    pub report: &'a RefCell<Report>,
    /// Items of the large containers.
    pub items: u32,
    /// Connections that send one request after the other.
    pub connections: u32,
    /// How often each of two measurements that are compared is made.
    pub rounds: u32,
    /// The length of one round.
    pub extent: Extent,
}

impl<'a> CaseContext<'a> {
    pub fn case(&self, name: &'static str) -> CaseReport<'a> {
        CaseReport::new(name, self.report)
    }

    /// Begins the report with what the machine is.
    pub fn machine(&self) -> CaseReport<'a> {
        let machine = self.case("machine");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        machine.show("cores", cores as f64, Unit::Count);
        machine
    }

    pub fn length(&self) -> Duration {
        self.extent.length
    }

    /// The length of a round of slow operations: only their latency or rate is of interest.
    pub fn short_extent(&self) -> Extent {
        Extent {
            operations_min: 0,
            ..self.extent
        }
    }

    /// Measures point reads of a container that holds the items 0 to `items`.
    pub async fn reads(
        &self,
        server: &ServerProcess,
        container: &str,
        items: u32,
        connections: u32,
    ) -> Result<Measured> {
        let scripts = PointReads::spread(&self.bench.signer, container, items, connections);
        measure(server, scripts, self.extent).await
    }

    /// Measures creates of 1 KB items; `round` must differ between loads of one container.
    pub async fn creates(
        &self,
        server: &ServerProcess,
        container: &str,
        round: u32,
        (connections, extent): (u32, Extent),
    ) -> Result<Measured> {
        let signer = &self.bench.signer;
        let scripts = Creates::spread(signer, container, Look::Payload, round, connections);
        measure(server, scripts, extent).await
    }
}
