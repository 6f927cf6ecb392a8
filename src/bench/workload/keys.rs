//! Which item an operation goes to.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rand_distr::{Distribution as _, Zipf};

use super::{Distribution, KeysPart};
use crate::bench::item::Random;

/// A zipfian distribution is prepared for the number of items at the time, and anew when there are
/// this much more.
const GROWTH: f64 = 1.1;

/// How many items were inserted, now and some seconds ago.
pub struct Inserted {
    count: AtomicU64,
    /// Second and count at its begin, oldest first.
    marks: Mutex<VecDeque<(u64, u64)>>,
    keep_seconds: u64,
}

impl Inserted {
    pub fn new(count: u64, keep_seconds: u32) -> Self {
        Self {
            count: AtomicU64::new(count),
            marks: Mutex::new(VecDeque::new()),
            keep_seconds: u64::from(keep_seconds),
        }
    }

    /// This many were loaded.
    pub fn start(&self, count: u64) {
        self.count.store(count, Ordering::Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The number of a new item.
    pub fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// The first item that was inserted in the last seconds, as they are kept.
    fn recent(&self, now: u64) -> u64 {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.back().is_none_or(|(second, _)| *second < now) {
            marks.push_back((now, self.count()));
        }
        while marks
            .get(1)
            .is_some_and(|(second, _)| second + self.keep_seconds <= now)
        {
            marks.pop_front();
        }
        // Before the first mark is old enough, everything is recent.
        match marks.front() {
            Some((second, count)) if second + self.keep_seconds <= now => *count,
            _ => 0,
        }
    }
}

/// Chooses items for one connection.
pub struct ItemChooser {
    part: KeysPart,
    /// The distribution of ranks among this many items.
    ranks: Option<(u64, Zipf<f64>)>,
}

impl ItemChooser {
    pub fn new(part: &KeysPart) -> Self {
        Self {
            part: part.clone(),
            ranks: None,
        }
    }

    /// The number of an item among those inserted.
    pub fn choose(&mut self, random: &mut Random, inserted: &Inserted, now: u64) -> u64 {
        let count = inserted.count().max(1);
        match self.part.distribution {
            Distribution::Uniform => random.below_wide(count),
            Distribution::Zipfian => {
                // Hot items are spread over all, as neighbours share a partition key.
                let rank = self.rank(random, count);
                Random::new(rank).next() % count
            }
            Distribution::Latest => count - 1 - self.rank(random, count).min(count - 1),
            Distribution::Recent => {
                let first = inserted.recent(now).min(count - 1);
                first + random.below_wide(count - first)
            }
        }
    }

    /// How many items to scan.
    pub fn scan_items(&self, random: &mut Random) -> u32 {
        1 + random.below(self.part.scan_items_max)
    }

    /// From 0, the most frequent, to below `count`.
    fn rank(&mut self, random: &mut Random, count: u64) -> u64 {
        let is_fit = |known: u64| known <= count && count as f64 <= known as f64 * GROWTH;
        if !self.ranks.as_ref().is_some_and(|(known, _)| is_fit(*known)) {
            let zipf = Zipf::new(count as f64, self.part.skew);
            self.ranks = zipf.ok().map(|zipf| (count, zipf));
        }
        match &self.ranks {
            Some((_, zipf)) => zipf.sample(random) as u64 - 1,
            None => random.below_wide(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn counts(distribution: Distribution, inserted: &Inserted) -> Vec<usize> {
        let mut chooser = ItemChooser::new(&KeysPart {
            distribution,
            ..KeysPart::default()
        });
        let mut random = Random::new(7);
        let mut counts = vec![0; inserted.count() as usize];
        for _ in 0..DRAWS {
            counts[chooser.choose(&mut random, inserted, 0) as usize] += 1;
        }
        counts
    }

    #[test]
    fn uniform_chooses_all_alike() {
        let counts = counts(Distribution::Uniform, &Inserted::new(100, 10));
        for count in counts {
            assert!((1_700..2_300).contains(&count), "{count}");
        }
    }

    /// The share of the most frequent of n items is 1 / the sum of 1/k^s.
    fn first_share(items: u32) -> f64 {
        let weights = (1..=items).map(|k| f64::from(k).powf(-KeysPart::default().skew));
        1.0 / weights.sum::<f64>()
    }

    #[test]
    fn zipfian_has_few_hot_items_that_are_no_neighbours() {
        let counts = counts(Distribution::Zipfian, &Inserted::new(1_000, 10));
        let mut hottest: Vec<(usize, usize)> = counts.into_iter().enumerate().collect();
        hottest.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let share = hottest[0].1 as f64 / DRAWS as f64;
        // Two ranks may fall on one item, so it can be a little more.
        let expected = first_share(1_000);
        assert!(
            (0.9..1.7).contains(&(share / expected)),
            "{share} {expected}"
        );
        assert!(hottest[0].0.abs_diff(hottest[1].0) > 1);
    }

    #[test]
    fn latest_prefers_the_newest_also_as_items_come() {
        let inserted = Inserted::new(1_000, 10);
        let mut chooser = ItemChooser::new(&KeysPart {
            distribution: Distribution::Latest,
            ..KeysPart::default()
        });
        let mut random = Random::new(3);
        for _ in 0..2_000 {
            let newest = inserted.next();
            let draws = 100;
            let hits = (0..draws)
                .filter(|_| {
                    let chosen = chooser.choose(&mut random, &inserted, 0);
                    assert!(chosen <= newest);
                    chosen == newest
                })
                .count();
            assert!(hits <= 60, "{hits}");
        }
        let counts = counts(Distribution::Latest, &Inserted::new(1_000, 10));
        let share = counts[999] as f64 / DRAWS as f64;
        assert!((share / first_share(1_000) - 1.0).abs() < 0.1, "{share}");
        assert!(counts[999] > counts[998] && counts[998] > counts[990]);
    }

    #[test]
    fn recent_looks_back_as_many_seconds_as_it_should() {
        let inserted = Inserted::new(100, 2);
        assert_eq!(inserted.recent(10), 0);
        for _ in 0..50 {
            inserted.next();
        }
        assert_eq!(inserted.recent(11), 0);
        for _ in 0..50 {
            inserted.next();
        }
        assert_eq!(inserted.recent(12), 100);
        assert_eq!(inserted.recent(13), 150);
        assert_eq!(inserted.recent(14), 200);
        assert_eq!(inserted.count(), 200);
    }
}
