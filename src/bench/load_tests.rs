//! The loops against servers that stall and break.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::load::{Load, LoadPlan, LoadTally, NO_ANSWER, Script};
use super::pace::Pace;
use crate::client::connection::RawAnswer;
use crate::client::endpoint::Endpoint;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

struct Ask {
    is_patient: bool,
}

impl Script for Ask {
    fn next(&mut self) -> Option<&[u8]> {
        Some(b"GET / HTTP/1.1\r\n\r\n")
    }

    fn accepts(&mut self, answer: RawAnswer<'_>) -> bool {
        answer.status == 200
    }

    fn unanswered(&mut self) -> bool {
        self.is_patient
    }
}

/// Serves connections one after the other; `serve` is called for each request with its number.
fn server(serve: impl Fn(u32, &mut TcpStream) -> bool + Send + 'static) -> Endpoint {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut number = 0;
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 1_024];
            while stream.read(&mut request).is_ok_and(|read| read > 0) {
                number += 1;
                if !serve(number, &mut stream) {
                    break;
                }
            }
        }
    });
    Endpoint::local(port)
}

fn start(endpoint: Endpoint, pace: Pace, is_patient: bool) -> Load {
    Load::start(LoadPlan {
        endpoints: vec![endpoint],
        scripts: vec![Box::new(Ask { is_patient })],
        pace,
        operations: 1,
    })
    .unwrap()
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A load against a server that stalls once, until 100 operations are overdue.
async fn stalled(pace: Pace) -> (LoadTally, Duration) {
    let (is_stalled, is_released) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let endpoint = {
        let (is_stalled, is_released) = (Arc::clone(&is_stalled), Arc::clone(&is_released));
        server(move |number, stream| {
            if number == 20 {
                is_stalled.store(true, Ordering::Release);
                while !is_released.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            stream.write_all(ANSWER).is_ok()
        })
    };
    let reference = Pace::new(Some(1_000.0));
    let load = start(endpoint, pace.clone(), false);
    until(|| is_stalled.load(Ordering::Acquire)).await;
    let begun = Instant::now();
    let overdue = || match (&pace, &reference) {
        (Pace::Scheduled(schedule), _) | (_, Pace::Scheduled(schedule)) => {
            schedule.unsent(Instant::now()) >= 100
        }
        _ => true,
    };
    until(overdue).await;
    let stall = begun.elapsed();
    is_released.store(true, Ordering::Release);
    until(|| load.operations(0) >= 200).await;
    let tally = load.stop().await.unwrap().swap_remove(0);
    (tally, stall)
}

fn slow(tally: &LoadTally, stall: Duration) -> u64 {
    let half = stall.as_nanos() as u64 / 2;
    tally.latency.counts().count_between(half, u64::MAX)
}

#[tokio::test]
async fn at_a_constant_rate_a_stall_is_felt_by_all_that_should_have_been_sent_meanwhile() {
    let (tally, stall) = stalled(Pace::new(Some(1_000.0))).await;
    assert!(slow(&tally, stall) >= 25, "{}", slow(&tally, stall));
}

#[tokio::test]
async fn in_a_closed_loop_a_stall_is_felt_by_one() {
    let (tally, stall) = stalled(Pace::AnswerByAnswer).await;
    assert!(slow(&tally, stall) <= 3, "{}", slow(&tally, stall));
}

#[tokio::test]
async fn a_broken_connection_is_opened_again_and_counted() {
    let breaks = |number: u32, stream: &mut TcpStream| {
        !number.is_multiple_of(10) && stream.write_all(ANSWER).is_ok()
    };
    let load = start(server(breaks), Pace::AnswerByAnswer, true);
    until(|| load.operations(0) >= 25).await;
    let tally = load.stop().await.unwrap().swap_remove(0);
    assert!(tally.unexpected[&NO_ANSWER] >= 2, "{:?}", tally.unexpected);
}

#[tokio::test]
async fn a_script_that_needs_every_answer_ends_the_load_with_the_reason() {
    let load = start(server(|_, _| false), Pace::AnswerByAnswer, false);
    let error = load.ended(Duration::from_secs(30)).await.err().unwrap();
    assert!(
        error.message.contains("connection failed"),
        "{}",
        error.message
    );
}

#[test]
fn what_the_server_does_not_offer_is_no_error() {
    let tally = LoadTally {
        operations: 10,
        unexpected: [(503, 2), (501, 3), (NO_ANSWER, 1)].into(),
        ..LoadTally::default()
    };
    assert_eq!(
        tally.errors().collect::<Vec<_>>(),
        [(NO_ANSWER, 1), (503, 2)]
    );
    assert_eq!((tally.errors_total(), tally.not_implemented()), (3, 3));
}
