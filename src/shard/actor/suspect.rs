//! What a shard does not do while the time is suspect, besides purging: set watermarks, which are
//! final.

use actix::prelude::*;

use super::Shard;
use crate::{
    clock::Suspicion,
    model::{error::Error, ttl::DefaultTtl},
};

/// Refuses a change of a default while the time is suspect.
pub fn suspect_time(suspicion: Suspicion) -> Error {
    let seconds = suspicion.trusted_in_seconds().unwrap_or_default();
    Error::unavailable(format!(
        "'defaultTtl' cannot change now: {suspicion}, and the change would be final for items that may not have expired; \
         confirm the time (bolide clock confirm) or try again in {seconds} s"
    ))
}

impl Shard {
    /// Returns why a new default must wait: a suspect time may not set watermarks past items that
    /// it alone has let expire.
    pub(in crate::shard) fn holds_default(&self, default: DefaultTtl) -> Option<Suspicion> {
        let before = self.decided.rules.default;
        if before == default || before == DefaultTtl::Off {
            return None;
        }
        let suspicion = self.view.clock.suspicion()?;
        self.view.has_expired().unwrap_or(true).then_some(suspicion)
    }

    /// Tries the changes of the default once more that have waited for a trusted time.
    pub(in crate::shard) fn change_held_defaults(&mut self, context: &mut Context<Self>) {
        for request in std::mem::take(&mut self.waits_for_time) {
            self.handle(request, context);
        }
    }
}
