//! How HTTP carries the fields of the protocol: as headers.

use std::sync::LazyLock;

use http::header::{HeaderMap, HeaderName};

use crate::gateway::protocol::Header;

pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The names of all fields, in the order of their variants.
static NAMES: LazyLock<Vec<HeaderName>> = LazyLock::new(|| {
    let names = Header::ALL.iter();
    names
        .map(|header| HeaderName::from_static(header.name()))
        .collect()
});

/// Returns the header that carries a field.
pub fn name(header: Header) -> &'static HeaderName {
    &NAMES[header as usize]
}

/// Returns the field that a header carries, if it carries one.
pub fn header_of(name: &str) -> Option<Header> {
    let mut all = Header::ALL.iter().copied();
    all.find(|header| header.name() == name)
}

/// Returns a header as text; one that is not visible ASCII counts as absent. No header has control
/// characters, so ASCII is all that has to be looked for, many bytes at a time.
pub fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let value = headers.get(name)?;
    let text = std::str::from_utf8(value.as_bytes()).ok()?;
    text.is_ascii().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_header_of_its_own() {
        for header in Header::ALL.iter().copied() {
            assert_eq!(name(header), header.name());
            assert_eq!(header_of(header.name()), Some(header));
        }
    }
}
