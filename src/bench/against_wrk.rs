//! The driver against `wrk`, which checks and signs nothing: how much of the rate that a simple
//! driver reaches is left to the one that does.

use std::cell::RefCell;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::measure::Spread;
use super::node::Launcher;
use super::options::DriverBench;
use super::process::find_binary;
use super::report::Unit::{PerSecond, Share};
use super::report::{CaseReport, Report};
use super::request::{CosmosRequest, container_link};
use super::run::peak_of_reads;
use crate::model::error::{Error, Result};

const THREADS: &str = "2";

/// Rounds of the three alternate, so that noise hits all alike.
pub async fn run(options: &DriverBench, report: &RefCell<Report>) -> Result<()> {
    let Some(wrk) = find_binary("wrk", &[]) else {
        return Err(Error::bad_request(
            "wrk is not installed: it is what the driver is measured against \
             (Debian's package 'wrk')",
        ));
    };
    let bench = Launcher::new(None)?;
    let baseline = bench.start_baseline().await?;
    let url = format!("http://127.0.0.1:{}", baseline.port);
    let length = Duration::from_secs(u64::from(options.seconds));
    let (path, headers) = same_request(&bench);
    let (mut plain, mut same, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        plain.push(rate_of_wrk(&wrk, options, &format!("{url}/"), &[]).await?);
        own.push(peak_of_reads(baseline.port, options.connections, length).await?);
        same.push(rate_of_wrk(&wrk, options, &format!("{url}{path}"), &headers).await?);
    }
    let case = CaseReport::new("driver", report);
    for (name, rates) in [
        ("wrk", &plain),
        ("wrk, with requests as long as the driver's", &same),
        ("driver", &own),
    ] {
        let rate = Spread::of(rates).median;
        case.show(format!("{name}, rate"), rate, PerSecond);
    }
    for (name, rates, at_least) in [
        ("rate, of wrk's", &plain, Some(0.8)),
        ("rate, of wrk's with requests as long", &same, None),
    ] {
        let ratios: Vec<f64> = own.iter().zip(rates).map(|(own, wrk)| own / wrk).collect();
        case.ratios(name, &ratios, Share, at_least);
    }
    Ok(())
}

/// The path and the headers of a signed read.
fn same_request(bench: &Launcher) -> (String, Vec<String>) {
    let read = CosmosRequest::item(&container_link("ycsb-c-00000000"), 0_u64);
    let bytes = read.bytes(&bench.signer);
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().skip(1);
    let headers = lines.filter(|line| !line.is_empty() && !line.starts_with("host:"));
    let headers = headers.map(str::to_owned).collect();
    (read.path().to_owned(), headers)
}

async fn rate_of_wrk(
    wrk: &Path,
    options: &DriverBench,
    url: &str,
    headers: &[String],
) -> Result<f64> {
    let mut command = Command::new(wrk);
    command.args(["-t", THREADS, "-c", &options.connections.to_string()]);
    command.args(["-d", &format!("{}s", options.seconds)]);
    for header in headers {
        command.args(["-H", header]);
    }
    command.arg(url);
    let failed = |what: String| Error::unavailable(format!("wrk failed: {what}"));
    let ended = tokio::task::spawn_blocking(move || command.output()).await;
    let output = ended
        .map_err(std::io::Error::other)
        .flatten()
        .map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    rate_told(&text).ok_or_else(|| {
        let told = String::from_utf8_lossy(&output.stderr);
        failed(format!("{text}{told}"))
    })
}

/// What it prints as its rate; nothing, if any request failed.
fn rate_told(text: &str) -> Option<f64> {
    if text.contains("Socket errors") || text.contains("Non-2xx") {
        return None;
    }
    let rate = text
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"))?;
    rate.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_found_unless_requests_failed() {
        let text =
            "  1044 requests in 1.00s, 5MB read\nRequests/sec:  1039.52\nTransfer/sec:  5MB\n";
        assert_eq!(rate_told(text), Some(1_039.52));
        let refused = format!("{text}  Non-2xx or 3xx responses: 3\n");
        assert_eq!(rate_told(&refused), None);
        assert_eq!(rate_told("unable to connect"), None);
    }
}
