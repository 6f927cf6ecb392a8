//! Conflicts. One region never has any.

use super::{catalog::list, query};
use crate::{
    gateway::{call::Call, protocol::Response},
    model::{
        error::{Error, Result},
        json,
    },
};

pub fn list_all(call: &Call<'_>, db: &str, coll: &str) -> Result<Response> {
    let container = call.container(db, coll)?;
    list(call, &container.rid_text, "Conflicts", Vec::new())
}

pub fn query_all(call: &Call<'_>, db: &str, coll: &str) -> Result<Response> {
    let container = call.container(db, coll)?;
    if !query::names_partition(call) {
        return Err(query::cross_partition_disabled());
    }
    list(call, &container.rid_text, "Conflicts", Vec::new())
}

pub fn missing(call: &Call<'_>, db: &str, coll: &str, id: &str) -> Result<Response> {
    call.container(db, coll)?;
    Err(Error::not_found(format!(
        "Entity with the specified id does not exist in the system: there is no conflict '{}'",
        json::shorten(id)
    )))
}
