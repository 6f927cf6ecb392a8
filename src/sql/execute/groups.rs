//! GROUP BY and aggregates.

use crate::model::error::Result;
use crate::sql::compare::canonical_key;
use crate::sql::eval::{Context, Scope, eval, memory_size};
use crate::sql::functions::Accumulator;
use crate::sql::program::Grouping;
use serde_json::Value;
use std::collections::HashMap;

/// What a group takes in the table of places.
const PLACE_BYTES: usize = size_of::<(Vec<u8>, usize)>() + 1;
/// About what a group takes besides its keys and aggregates: two lists, and its place in a table
/// that is between half and all of it full.
const GROUP_BYTES: usize = size_of::<Group>() + 3 * size_of::<(Vec<u8>, usize)>();

/// The groups in the order in which they were first seen.
#[derive(Default)]
pub struct Groups {
    places: HashMap<Vec<u8>, usize>,
    pub states: Vec<Group>,
    pub held_bytes: usize,
}

pub struct Group {
    pub keys: Vec<Option<Value>>,
    pub accumulators: Vec<Accumulator>,
}

impl Group {
    /// The keys and then the aggregates.
    pub fn finish(self) -> Vec<Option<Value>> {
        let mut values = self.keys;
        values.extend(self.accumulators.into_iter().map(Accumulator::finish));
        values
    }
}

impl Groups {
    pub fn push(&mut self, grouping: &Grouping, row: &Scope<'_>, context: &Context) -> Result<()> {
        let mut place = Vec::new();
        let mut keys = Vec::with_capacity(grouping.keys.len());
        for key in &grouping.keys {
            let key = eval(key, row, context)?;
            canonical_key(key.as_deref(), &mut place);
            keys.push(key);
        }
        context.charge_key(place.len())?;
        let (states, places) = (&self.states, &self.places);
        context.reserve_growth(states.len(), states.capacity(), size_of::<Group>())?;
        context.reserve_growth(places.len(), places.capacity(), PLACE_BYTES)?;
        let keys = keys
            .into_iter()
            .map(|key| key.map(|key| context.own_key(key)).transpose())
            .collect::<Result<_>>()?;
        let mut held_bytes = 0;
        let group = self.group(place, keys, grouping);
        for (accumulator, call) in group.accumulators.iter_mut().zip(&grouping.aggregates) {
            if let Some(value) = eval(&call.argument, row, context)? {
                if call.aggregate.keeps_values() {
                    held_bytes += memory_size(&value);
                }
                accumulator.add(value, context)?;
            }
        }
        self.held_bytes += held_bytes;
        Ok(())
    }

    pub fn group(
        &mut self,
        place: Vec<u8>,
        keys: Vec<Option<Value>>,
        grouping: &Grouping,
    ) -> &mut Group {
        let next = self.states.len();
        let place_bytes = place.len();
        let at = *self.places.entry(place).or_insert(next);
        if at == next {
            let keys_bytes: usize = keys.iter().flatten().map(memory_size).sum();
            let aggregates_bytes = grouping.aggregates.len() * size_of::<Accumulator>();
            self.held_bytes += place_bytes + keys_bytes + aggregates_bytes + GROUP_BYTES;
            let accumulators = grouping
                .aggregates
                .iter()
                .map(|call| Accumulator::new(call.aggregate))
                .collect();
            self.states.push(Group { keys, accumulators });
        }
        self.states
            .get_mut(at)
            .expect("places point into states, which never shrinks")
    }
}
