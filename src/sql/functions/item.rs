//! What is left: the conditional, and the number of an item in its partition.

use super::{Arguments, Function, function, owned};
use crate::model::error::Result;
use crate::sql::eval::{Context, Evaluated};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub const FUNCTIONS: &[Function] = &[
    // Never called: it becomes a conditional node, which evaluates only one branch.
    function("IIF", 3, 3, |_, _| Ok(None)),
    function("DOCUMENTID", 1, 1, document_id),
];

/// The bytes of a resource id that number the item in its container.
const ITEM_NUMBER: std::ops::Range<usize> = 8..16;

/// The number in the item's resource id.
fn document_id<'a>(arguments: &mut Arguments<'a>, _: &Context) -> Result<Evaluated<'a>> {
    let rid = arguments.get(0).and_then(|item| item.get("_rid")?.as_str());
    let bytes = rid.and_then(|rid| STANDARD.decode(rid.replace('-', "/")).ok());
    let number = bytes
        .as_deref()
        .and_then(|bytes| bytes.get(ITEM_NUMBER)?.try_into().ok());
    Ok(number.map(u64::from_le_bytes).and_then(owned))
}
