//! Which consumer may take how much of the node's memory.

use tracing::{info, warn};

use super::{MIB, Memory};
use crate::{config::Settings, store::options::RAFT_LOG_CACHE_PART};

/// Part of the memory that a consumer gets by default, and the ends between which that stays.
struct DefaultShare {
    divisor: u64,
    min: usize,
    max: usize,
}

impl DefaultShare {
    const fn new(divisor: u64, min: usize, max: usize) -> Self {
        Self { divisor, min, max }
    }

    fn of(&self, memory: &Memory) -> usize {
        let share = usize::try_from(memory.bytes / self.divisor).unwrap_or(usize::MAX);
        share.clamp(self.min, self.max)
    }
}

const BLOCK_CACHE: DefaultShare = DefaultShare::new(8, 16 * MIB, 256 * MIB);
const WRITE_BUFFERS: DefaultShare = DefaultShare::new(16, 8 * MIB, 128 * MIB);
const QUERIES: DefaultShare = DefaultShare::new(8, 16 * MIB, 512 * MIB);
const REQUEST_BODIES: DefaultShare = DefaultShare::new(16, 8 * MIB, 256 * MIB);
const RECENT_DOCUMENTS: DefaultShare = DefaultShare::new(64, MIB, 32 * MIB);
const PARSED_BODIES: DefaultShare = DefaultShare::new(8, 16 * MIB, 512 * MIB);
/// At least two answers of the largest size.
const ANSWERS: DefaultShare = DefaultShare::new(32, 8 * MIB, 128 * MIB);
/// One query takes at most this part of what all queries share.
const QUERIES_AT_THEIR_BOUND: usize = 2;
const QUERY_BYTES_MAX: usize = 128 * MIB;
/// What the process takes besides: its code, threads, connections, indexes and filters of SSTs,
/// pages that the allocator has not given back yet.
const BESIDES_BYTES: usize = 96 * MIB;

/// The bounds of everything in the node that grows with its load, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBounds {
    pub block_cache: usize,
    pub write_buffers: usize,
    /// All queries together.
    pub queries: usize,
    /// One query; part of `queries`.
    pub query: usize,
    /// Bodies of requests in flight.
    pub request_bodies: usize,
    /// Documents that queries have found lately.
    pub recent_documents: usize,
    /// What is made of bodies: values, index terms, what the engine gets of both.
    pub parsed_bodies: usize,
    /// Items in answers to batches in flight, and in pages of feeds that are put together.
    pub answers: usize,
    /// Block cache and write buffers of the Raft log; 0 on a standalone node.
    pub raft_log: usize,
}

impl MemoryBounds {
    /// Takes what is set; what is 0 follows from the memory. A member of a cluster has a Raft log.
    pub fn new(settings: &Settings, memory: &Memory, is_member: bool) -> Self {
        let or = |set: usize, share: &DefaultShare| match set {
            0 => share.of(memory),
            set => set,
        };
        let mib = |count: u64| {
            usize::try_from(count)
                .unwrap_or(usize::MAX)
                .saturating_mul(MIB)
        };
        let (storage, limits) = (&settings.storage, &settings.limits);
        let queries = or(limits.queries_bytes_max, &QUERIES);
        let query = match limits.query_bytes_max {
            0 => QUERY_BYTES_MAX.min(queries / QUERIES_AT_THEIR_BOUND),
            set => set.min(queries),
        };
        let block_cache = or(mib(storage.block_cache_mb), &BLOCK_CACHE);
        let write_buffers = or(mib(storage.write_buffer_mb), &WRITE_BUFFERS);
        let raft_log = block_cache / RAFT_LOG_CACHE_PART as usize + write_buffers;
        Self {
            block_cache,
            write_buffers,
            raft_log: if is_member { raft_log } else { 0 },
            queries,
            query,
            request_bodies: or(limits.node_inflight_bytes_max, &REQUEST_BODIES),
            recent_documents: RECENT_DOCUMENTS.of(memory),
            parsed_bodies: PARSED_BODIES.of(memory),
            answers: ANSWERS.of(memory),
        }
    }

    /// Puts the bounds into the settings, for those who read them there.
    pub fn fill_in(&self, settings: &mut Settings) {
        let mib = |bytes: usize| (bytes / MIB) as u64;
        settings.storage.block_cache_mb = mib(self.block_cache);
        settings.storage.write_buffer_mb = mib(self.write_buffers);
        settings.limits.queries_bytes_max = self.queries;
        settings.limits.query_bytes_max = self.query;
        settings.limits.node_inflight_bytes_max = self.request_bodies;
    }

    /// All bounds together.
    pub fn sum(&self) -> usize {
        [
            self.block_cache,
            self.write_buffers,
            self.queries,
            self.request_bodies,
            self.recent_documents,
            self.parsed_bodies,
            self.answers,
            self.raft_log,
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }

    /// Whether all consumers may be at their bounds at once and the process still fits.
    fn fits(&self, memory: &Memory) -> bool {
        self.sum().saturating_add(BESIDES_BYTES) as u64 <= memory.bytes
    }

    /// Logs the bounds and their sum; warns when they are more than there is.
    pub fn log(&self, memory: &Memory) {
        info!(
            memory_bytes = memory.bytes,
            source = %memory.source,
            block_cache_bytes = self.block_cache,
            write_buffer_bytes = self.write_buffers,
            queries_bytes = self.queries,
            query_bytes = self.query,
            request_body_bytes = self.request_bodies,
            recent_document_bytes = self.recent_documents,
            parsed_body_bytes = self.parsed_bodies,
            answer_bytes = self.answers,
            raft_log_bytes = self.raft_log,
            sum_bytes = self.sum(),
            "memory bounds"
        );
        if !self.fits(memory) {
            warn!(
                memory_bytes = memory.bytes,
                source = %memory.source,
                sum_bytes = self.sum(),
                besides_bytes = BESIDES_BYTES,
                "the memory bounds and the process itself are more than the memory: under load \
                 the system may kill the node; lower storage.block_cache_mb, \
                 storage.write_buffer_mb, limits.queries_bytes_max or \
                 limits.node_inflight_bytes_max, or give it more memory"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemorySource;

    fn memory(mib: u64) -> Memory {
        Memory {
            bytes: mib * MIB as u64,
            source: MemorySource::Machine,
        }
    }

    #[test]
    fn plenty_of_memory_gives_the_upper_ends() {
        for mib in [4_096, 65_536, u64::MAX / MIB as u64] {
            let bounds = MemoryBounds::new(&Settings::default(), &memory(mib), false);
            let expected = MemoryBounds {
                block_cache: 256 * MIB,
                write_buffers: 128 * MIB,
                queries: 512 * MIB,
                query: 128 * MIB,
                request_bodies: 256 * MIB,
                recent_documents: 32 * MIB,
                parsed_bodies: 512 * MIB,
                answers: 128 * MIB,
                raft_log: 0,
            };
            assert_eq!(bounds, expected, "{mib}");
        }
    }

    #[test]
    fn defaults_leave_room_for_the_process_at_every_size() {
        for mib in (256..8_192).step_by(16) {
            let memory = memory(mib);
            for is_member in [false, true] {
                let bounds = MemoryBounds::new(&Settings::default(), &memory, is_member);
                assert!(bounds.fits(&memory), "{mib}: {bounds:?}");
                assert!(bounds.query >= 8 * MIB && bounds.query <= bounds.queries);
            }
        }
    }

    #[test]
    fn explicit_settings_are_taken_and_may_be_too_much() {
        let mut settings = Settings::default();
        settings.storage.block_cache_mb = 300;
        settings.limits.queries_bytes_max = 7 * MIB;
        settings.limits.query_bytes_max = 9 * MIB;
        let memory = memory(400);
        let bounds = MemoryBounds::new(&settings, &memory, false);
        assert_eq!(bounds.block_cache, 300 * MIB);
        assert_eq!(bounds.queries, 7 * MIB);
        assert_eq!(bounds.query, 7 * MIB, "one query has no more than all");
        assert!(!bounds.fits(&memory));
    }

    #[test]
    fn filled_in_settings_have_no_zero_and_give_the_same_bounds() {
        let mut settings = Settings::default();
        let bounds = MemoryBounds::new(&settings, &memory(400), false);
        bounds.fill_in(&mut settings);
        let again = MemoryBounds::new(&settings, &memory(65_536), false);
        assert_eq!(again.block_cache / MIB, bounds.block_cache / MIB);
        assert_eq!(
            (again.queries, again.query, again.request_bodies),
            (bounds.queries, bounds.query, bounds.request_bodies)
        );
    }
}
