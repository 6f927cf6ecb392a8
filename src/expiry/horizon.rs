//! What the compaction filter of a storage engine may drop.

use std::sync::atomic::{AtomicI64, Ordering};

use super::rules::Horizons;
use crate::model::ttl::ItemTtl;

/// How far expiry has come in one engine. Index entries of items behind it leave when files are
/// compacted. Expiry is final, so it never goes back.
#[derive(Debug)]
pub struct ExpiryHorizon {
    inherit: AtomicI64,
    own: AtomicI64,
}

impl Default for ExpiryHorizon {
    fn default() -> Self {
        let Horizons { inherit, own } = Horizons::NONE;
        Self {
            inherit: AtomicI64::new(inherit),
            own: AtomicI64::new(own),
        }
    }
}

impl ExpiryHorizon {
    /// Moves each horizon forward, unless it is further already.
    pub fn raise(&self, horizons: Horizons) {
        self.inherit.fetch_max(horizons.inherit, Ordering::Relaxed);
        self.own.fetch_max(horizons.own, Ordering::Relaxed);
    }

    /// Returns whether an item that was written at `ts` is dead for ever.
    pub fn is_dead(&self, ts: i64, ttl: ItemTtl) -> bool {
        let horizons = Horizons {
            inherit: self.inherit.load(Ordering::Relaxed),
            own: self.own.load(Ordering::Relaxed),
        };
        horizons.is_expired(ts, ttl)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn it_never_goes_back() {
        let horizon = ExpiryHorizon::default();
        let own = ItemTtl::After(NonZeroU32::new(5).unwrap());
        assert!(!horizon.is_dead(i64::MIN + 1, ItemTtl::Inherit));
        horizon.raise(Horizons {
            inherit: 10,
            own: 20,
        });
        horizon.raise(Horizons {
            inherit: 4,
            own: 22,
        });
        let dead = |ts, ttl| horizon.is_dead(ts, ttl);
        assert_eq!([10, 11].map(|ts| dead(ts, ItemTtl::Inherit)), [true, false]);
        assert_eq!([17, 18].map(|ts| dead(ts, own)), [true, false]);
        assert!(!dead(0, ItemTtl::Never));
    }
}
