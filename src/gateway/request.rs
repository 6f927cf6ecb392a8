//! What a request says in its headers and its body.

use http::header::{CONTENT_TYPE, HeaderName, IF_MATCH, IF_NONE_MATCH};

use super::headers;
use crate::{
    model::{
        error::{Error, Result},
        item::EtagCondition,
        json,
    },
    router::session::SessionToken,
};

pub use super::request_body::{Payload, body};
pub use crate::server::Request;

/// The values of `x-ms-version` that clients have been released with.
const API_VERSIONS: &[&str] = &[
    "2014-08-21",
    "2015-04-08",
    "2015-06-03",
    "2015-08-06",
    "2015-12-16",
    "2016-05-30",
    "2016-07-11",
    "2016-11-14",
    "2017-01-19",
    "2017-02-22",
    "2017-05-03",
    "2017-11-15",
    "2018-06-18",
    "2018-08-31",
    "2018-09-17",
    "2018-12-31",
    "2020-07-15",
    "2020-11-05",
];

/// A header as text; one that is not visible ASCII counts as absent for those who do not need it. No header has control characters, so
/// ASCII is all that has to be looked for, many bytes at a time.
pub fn text<'a>(request: &'a Request, name: &HeaderName) -> Option<&'a str> {
    let value = request.headers().get(name)?;
    let text = std::str::from_utf8(value.as_bytes()).ok()?;
    text.is_ascii().then_some(text)
}

/// `true` and `True` are true; anything else is not.
pub fn flag(request: &Request, name: &HeaderName) -> bool {
    text(request, name).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}

pub fn check_version(request: &Request) -> Result<()> {
    match text(request, &headers::VERSION) {
        Some(version) if !API_VERSIONS.contains(&version) => Err(Error::bad_request(format!(
            "the API version '{}' of the header x-ms-version is not supported; the newest is {}",
            json::shorten(version),
            API_VERSIONS.last().unwrap_or(&"")
        ))),
        _ => Ok(()),
    }
}

/// Resources, batches and patches are JSON; a client that says it sends something else is wrong about one of the two. The types of patches begin
/// like that of JSON.
pub fn check_content_type(request: &Request) -> Result<()> {
    match text(request, &CONTENT_TYPE) {
        Some(value)
            if !value
                .trim_start()
                .to_ascii_lowercase()
                .starts_with("application/json") =>
        {
            Err(Error::bad_request(format!(
                "the content type '{}' is not application/json; send the header 'content-type: application/json', or none",
                json::shorten(value)
            )))
        }
        _ => Ok(()),
    }
}

pub fn if_match(request: &Request) -> Option<EtagCondition> {
    text(request, &IF_MATCH).map(EtagCondition::parse)
}

pub fn if_none_match(request: &Request) -> Option<EtagCondition> {
    text(request, &IF_NONE_MATCH).map(EtagCondition::parse)
}

/// The client wants status and headers only.
pub fn wants_minimal(request: &Request) -> bool {
    text(request, &headers::PREFER)
        .is_some_and(|value| value.to_ascii_lowercase().contains("return=minimal"))
}

pub fn session(request: &Request) -> Result<Option<SessionToken>> {
    text(request, &headers::SESSION_TOKEN)
        .map(SessionToken::parse)
        .transpose()
}

/// The page size that the client asks for; `None` leaves it to the server.
pub fn max_item_count(request: &Request) -> Result<Option<usize>> {
    let Some(value) = text(request, &headers::MAX_ITEM_COUNT) else {
        return Ok(None);
    };
    match value.trim().parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(count) if count > 0 => Ok(usize::try_from(count).ok()),
        _ => Err(Error::bad_request(format!(
            "the value '{}' of x-ms-max-item-count is not -1 or a positive number",
            json::shorten(value)
        ))),
    }
}
