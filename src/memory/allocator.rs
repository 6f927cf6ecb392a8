//! What jemalloc tells of a thread, and how soon it gives pages back.

use std::{
    hint::black_box,
    sync::{
        LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use tikv_jemalloc_ctl::{
    Access as _, AsName as _, Mib, arenas, background_thread, thread, thread::ThreadLocal,
};

use super::Memory;

/// How long pages that are not used stay with the process, at this memory and above: jemalloc's
/// default. With less memory they stay proportionally shorter.
const DECAY_MS_MAX: u64 = 10_000;
const DECAY_MS_MAX_FROM_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// Above the size from which allocations are large, 8 MB.
const LARGE_BYTES: usize = 16 * 1024 * 1024;
/// Pages are given back at once at most this often.
const PURGE_MS_MIN: u64 = 100;

static IS_TUNED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The bytes that this thread has ever been given, and has ever given back.
    static COUNTERS: Option<(ThreadLocal<u64>, ThreadLocal<u64>)> = counters();
}

fn counters() -> Option<(ThreadLocal<u64>, ThreadLocal<u64>)> {
    let allocated = thread::allocatedp::read().ok()?;
    let deallocated = thread::deallocatedp::read().ok()?;
    let before = allocated.get();
    drop(black_box(Vec::<u8>::with_capacity(black_box(1_024))));
    // Another allocator may be in use; then the counters stand still.
    (allocated.get() > before).then_some((allocated, deallocated))
}

/// Returns the bytes that this thread was given minus those that it gave back, of which only
/// differences mean anything; `None` where the allocator does not count.
///
/// Memory that one thread takes and another gives back makes the number of a single thread
/// negative or large; the sum over the turns of one piece of work is right as long as that work
/// frees its own memory only.
#[inline]
pub fn net_bytes() -> Option<i64> {
    COUNTERS.with(|counters| {
        let (allocated, deallocated) = (*counters)?;
        Some(
            allocated
                .get()
                .wrapping_sub(deallocated.get())
                .cast_signed(),
        )
    })
}

/// Sets how soon unused pages go back to the system. Called once at start, while there are few
/// arenas: later ones take the new default.
pub fn tune(memory: &Memory) {
    let known = memory.bytes.min(DECAY_MS_MAX_FROM_BYTES);
    let decay_ms = DECAY_MS_MAX.saturating_mul(known) / DECAY_MS_MAX_FROM_BYTES;
    let decay_ms = isize::try_from(decay_ms).unwrap_or(isize::MAX);
    // The arena of large allocations gives pages back at once only if it is made before there is
    // a background thread.
    drop(black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
    // Without this thread an arena that nobody uses keeps its pages.
    let _ = background_thread::write(true);
    let _ = b"arenas.dirty_decay_ms\0".name().write(decay_ms);
    for_each_arena(|arena| {
        if arena.read().is_ok_and(|now: isize| now > decay_ms) {
            let _ = arena.write(decay_ms);
        }
    });
    IS_TUNED.store(true, Ordering::Relaxed);
}

/// Gives unused pages back to the system now, as after a heavy query; at most once in a while.
pub fn purge() {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    static LAST_MS: AtomicU64 = AtomicU64::new(0);
    if !IS_TUNED.load(Ordering::Relaxed) {
        return;
    }
    let now = u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX);
    let last = LAST_MS.load(Ordering::Relaxed);
    let is_due = now >= last.saturating_add(PURGE_MS_MIN);
    if is_due
        && LAST_MS
            .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    {
        for_each_arena(|arena| {
            // A decay of 0 gives everything back at once.
            if let Ok(decay_ms) = arena.update(0_isize)
                && decay_ms != 0
            {
                let _ = arena.write(decay_ms);
            }
        });
    }
}

/// Calls `work` with the name of each arena's decay. Arenas that nobody has used yet refuse.
fn for_each_arena(work: impl Fn(&Mib<[usize; 3]>)) {
    let Ok(mut arena) = b"arena.0.dirty_decay_ms\0".name().mib::<[usize; 3]>() else {
        return;
    };
    for index in 0..arenas::narenas::read().unwrap_or(0) {
        arena[1] = index as usize;
        work(&arena);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_bytes_follow_what_a_thread_holds() {
        let Some(before) = net_bytes() else {
            // Another allocator: nothing to count.
            return;
        };
        let held = black_box(vec![1_u8; 3_000_000]);
        let with = net_bytes().unwrap();
        assert!((3_000_000..4_000_000).contains(&(with - before)));
        drop(held);
        assert!((net_bytes().unwrap() - before).abs() < 100_000);
    }
}
