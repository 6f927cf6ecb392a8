//! Master key signatures: who signed this request, and may they write?
//!
//! The happy path works on the stack: the header is decoded into a small buffer, the payload is
//! fed to a copy of a prepared HMAC state, and the date is parsed once a second and thread.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use super::keys::{AccountKey, AccountKeys};
use super::resource_path::{Link, ResourcePath, Signing, hex};
use crate::model::error::{Error, ErrorKind, Result};

/// How far the date of a request may be from ours, either way.
pub const DATE_SKEW_SECONDS_MAX: i64 = 15 * 60;

/// Bytes of a decoded master token: `type=master&ver=1.0&sig=` and 44 characters, with room.
const TOKEN_BYTES_MAX: usize = 128;
/// Bytes of the longest date that can be valid: RFC 850 with `Wednesday` needs 33.
const DATE_BYTES_MAX: usize = 40;
/// Bytes of the longest verb we lower-case; all that clients use are shorter.
const VERB_BYTES_MAX: usize = 16;
/// Characters of a foreign value that an error message repeats.
const SHOWN_CHARS_MAX: usize = 100;
/// Characters of the payload that a mismatch repeats: enough for names of the usual lengths.
const SHOWN_PAYLOAD_CHARS_MAX: usize = 2_000;
/// The last second of the year 9999.
const SHOWN_SECONDS_MAX: u64 = 253_402_300_799;
/// Bytes of a signature: one SHA-256.
const SIGNATURE_BYTES: usize = 32;

type Signer = Hmac<Sha256>;

/// What the key that signed a request allows. Whether an operation is a write is for the caller
/// to say: a query is a POST that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Full,
    ReadOnly,
}

/// The request headers that a signature is made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuthHeaders<'a> {
    pub authorization: Option<&'a str>,
    pub x_ms_date: Option<&'a str>,
    pub date: Option<&'a str>,
}

/// Checks signatures against the account's keys, which can be replaced while it is in use.
pub struct Authenticator {
    signers: ArcSwap<Vec<(Signer, Access)>>,
}

impl Authenticator {
    pub fn new(keys: &AccountKeys) -> Self {
        Self {
            signers: ArcSwap::from_pointee(signers(keys)),
        }
    }

    /// Requests that are being checked finish with the keys they started with.
    pub fn replace_keys(&self, keys: &AccountKeys) {
        self.signers.store(Arc::new(signers(keys)));
    }

    /// Says what the signer of a request may do. `now` is in seconds since 1970.
    ///
    /// 401 when the signature is missing, malformed or wrong; 403 when it is right but its date is
    /// more than [`DATE_SKEW_SECONDS_MAX`] from `now`.
    pub fn authenticate(
        &self,
        verb: &str,
        path: &ResourcePath<'_>,
        headers: &AuthHeaders<'_>,
        now: i64,
    ) -> Result<Access> {
        let Some(authorization) = headers.authorization else {
            return Err(unauthorized("the authorization header is missing"));
        };
        let mut buffer = [0; TOKEN_BYTES_MAX];
        let signature = master_signature(authorization, &mut buffer)?;
        let (date, is_x_ms_date) = match (headers.x_ms_date, headers.date) {
            (Some(date), _) => (date, true),
            (None, Some(date)) => (date, false),
            (None, None) => {
                return Err(unauthorized(
                    "both the x-ms-date and the date header are missing",
                ));
            }
        };
        let signed_at = date_seconds(date)?;
        let Signing {
            resource_type,
            link,
            alternative,
        } = path.signing();
        let mut payload = Payload {
            verb: Lowered::new(verb)
                .ok_or_else(|| unauthorized(format!("the verb '{}' is unknown", shown(verb))))?,
            resource_type,
            link,
            date: Lowered::new(date).ok_or_else(|| bad_date(date))?,
            is_x_ms_date,
        };
        let signers = self.signers.load();
        let mut access = payload.signer(&signers, &signature);
        if access.is_none()
            && let Some(alternative) = alternative
        {
            let name = std::mem::replace(&mut payload.link, alternative);
            access = payload.signer(&signers, &signature);
            payload.link = name;
        }
        let access = access.ok_or_else(|| payload.mismatch())?;
        if signed_at.abs_diff(now) > DATE_SKEW_SECONDS_MAX.unsigned_abs() {
            return Err(outside_window(date, now));
        }
        Ok(access)
    }
}

fn signers(keys: &AccountKeys) -> Vec<(Signer, Access)> {
    let signer = |key: &AccountKey| {
        Signer::new_from_slice(key.bytes()).expect("HMAC takes keys of every length")
    };
    keys.iter()
        .map(|(key, access)| (signer(key), access))
        .collect()
}

/// `verb \n type \n link \n x-ms-date \n date \n`, where one of the dates is empty.
struct Payload<'a> {
    verb: Lowered<VERB_BYTES_MAX>,
    resource_type: &'a str,
    link: Link<'a>,
    date: Lowered<DATE_BYTES_MAX>,
    is_x_ms_date: bool,
}

impl Payload<'_> {
    /// The rights of the first key that gives this signature.
    fn signer(
        &self,
        signers: &[(Signer, Access)],
        signature: &[u8; SIGNATURE_BYTES],
    ) -> Option<Access> {
        signers.iter().find_map(|(prepared, access)| {
            let mut signer = prepared.clone();
            self.feed(|bytes| signer.update(bytes));
            let expected: [u8; SIGNATURE_BYTES] = signer.finalize().into_bytes().into();
            bool::from(expected.ct_eq(signature)).then_some(*access)
        })
    }

    fn feed(&self, mut sink: impl FnMut(&[u8])) {
        sink(self.verb.bytes());
        sink(b"\n");
        sink(self.resource_type.as_bytes());
        sink(b"\n");
        match &self.link {
            Link::Name(pieces) => {
                pieces
                    .iter()
                    .filter(|piece| !piece.is_empty())
                    .for_each(|p| sink(p.as_bytes()));
            }
            Link::Rid(rid) => sink(rid.to_lowercase().as_bytes()),
        }
        sink(if self.is_x_ms_date { b"\n" } else { b"\n\n" });
        sink(self.date.bytes());
        sink(if self.is_x_ms_date { b"\n\n" } else { b"\n" });
    }

    #[cold]
    fn mismatch(&self) -> Error {
        let mut bytes = Vec::new();
        self.feed(|piece| bytes.extend_from_slice(piece));
        let text = String::from_utf8_lossy(&bytes);
        unauthorized(format!(
            "the signature does not match: the key is wrong, or the signed text differs from the \
             text that this server signed: '{}'",
            cut(&text, SHOWN_PAYLOAD_CHARS_MAX)
        ))
    }
}

/// A short text in lower case, on the stack.
struct Lowered<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Lowered<N> {
    fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; N];
        let target = bytes.get_mut(..text.len())?;
        target.copy_from_slice(text.as_bytes());
        target.make_ascii_lowercase();
        Some(Self {
            bytes,
            length: text.len(),
        })
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// The signature of `type=master&ver=1.0&sig=…`, percent-encoded or not.
fn master_signature(
    authorization: &str,
    buffer: &mut [u8; TOKEN_BYTES_MAX],
) -> Result<[u8; SIGNATURE_BYTES]> {
    let (token, complete) = percent_decoded(authorization.trim().as_bytes(), buffer);
    let (mut kind, mut version, mut signature) = (None, None, None);
    // Only the first two `&` separate: what follows `sig=` belongs to the signature.
    for part in token.splitn(3, |byte| *byte == b'&') {
        let mut halves = part.splitn(2, |byte| *byte == b'=');
        match (halves.next(), halves.next()) {
            (Some(b"type"), value) => kind = value,
            (Some(b"ver"), value) => version = value,
            (Some(b"sig"), value) => signature = value,
            _ => {}
        }
    }
    match kind {
        Some(b"master") => {}
        Some(b"resource") => {
            return Err(unauthorized(
                "resource tokens (type=resource) are not supported: sign with an account key",
            ));
        }
        Some(b"aad") => {
            return Err(unauthorized(
                "Entra tokens (type=aad) are not supported: sign with an account key",
            ));
        }
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            let other = shown(&other);
            return Err(unauthorized(format!(
                "the authorization type '{other}' is unknown: sign with an account key (type=master)"
            )));
        }
        None => {
            return Err(unauthorized(
                "the authorization header is malformed: 'type=master&ver=1.0&sig=…' is expected, \
                 percent-encoded",
            ));
        }
    }
    if version != Some(b"1.0") {
        let version = String::from_utf8_lossy(version.unwrap_or_default());
        let version = shown(&version);
        return Err(unauthorized(format!(
            "the authorization version '{version}' is not '1.0'"
        )));
    }
    let Some(signature) = signature.filter(|text| !text.is_empty()) else {
        return Err(unauthorized(
            "the authorization header has no signature (sig=…)",
        ));
    };
    let mut decoded = [0; SIGNATURE_BYTES];
    match BASE64.decode_slice(signature, &mut decoded) {
        Ok(SIGNATURE_BYTES) if complete => Ok(decoded),
        _ => {
            let signature = String::from_utf8_lossy(signature);
            let signature = shown(&signature);
            Err(unauthorized(format!(
                "the signature '{signature}' is not {SIGNATURE_BYTES} bytes in base64"
            )))
        }
    }
}

/// Decodes `%XX` into the buffer as far as it goes; false when it was too short. Malformed
/// escapes stay as they are: they fail as base64 with a better message.
fn percent_decoded<'b>(mut text: &[u8], buffer: &'b mut [u8]) -> (&'b [u8], bool) {
    let mut length = 0;
    while let Some((&first, rest)) = text.split_first() {
        let Some(slot) = buffer.get_mut(length) else {
            return (buffer, false);
        };
        let escape = match (first, rest) {
            (b'%', [high, low, after @ ..]) => hex(*high)
                .zip(hex(*low))
                .map(|(high, low)| (high << 4 | low, after)),
            _ => None,
        };
        (*slot, text) = escape.unwrap_or((first, rest));
        length += 1;
    }
    (buffer.get(..length).unwrap_or_default(), true)
}

/// The date that was parsed last: the same text comes with every request of a second.
#[derive(Clone, Copy)]
struct ParsedDate {
    text: [u8; DATE_BYTES_MAX],
    seconds: i64,
}

thread_local! {
    static LAST_DATE: Cell<ParsedDate> =
        const { Cell::new(ParsedDate { text: [0; DATE_BYTES_MAX], seconds: 0 }) };
}

fn date_seconds(date: &str) -> Result<i64> {
    let mut text = [0; DATE_BYTES_MAX];
    let Some(target) = text.get_mut(..date.len()) else {
        return Err(bad_date(date));
    };
    target.copy_from_slice(date.as_bytes());
    let last = LAST_DATE.get();
    if last.text == text && !date.is_empty() {
        return Ok(last.seconds);
    }
    let seconds = parsed_date(date).ok_or_else(|| bad_date(date))?;
    LAST_DATE.set(ParsedDate { text, seconds });
    Ok(seconds)
}

fn parsed_date(date: &str) -> Option<i64> {
    let time = httpdate::parse_http_date(date)
        .or_else(|_| httpdate::parse_http_date(&capitalised(date)))
        .ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

/// Hand-written clients send the date in the lower case in which they sign it.
fn capitalised(date: &str) -> String {
    let mut inside_word = false;
    let mut text = String::with_capacity(date.len());
    for c in date.chars() {
        text.push(if inside_word {
            c.to_ascii_lowercase()
        } else {
            c.to_ascii_uppercase()
        });
        inside_word = c.is_ascii_alphabetic();
    }
    match text.strip_suffix("Gmt") {
        Some(start) => format!("{start}GMT"),
        None => text,
    }
}

#[cold]
fn bad_date(date: &str) -> Error {
    unauthorized(format!(
        "the date '{}' is not of the form 'Thu, 01 Jan 2026 00:00:00 GMT'",
        shown(date)
    ))
}

#[cold]
fn outside_window(date: &str, now: i64) -> Error {
    // Clamped, because a date that cannot be written in four digits of a year cannot be shown.
    let seconds = u64::try_from(now).unwrap_or(0).min(SHOWN_SECONDS_MAX);
    let server = UNIX_EPOCH + Duration::from_secs(seconds);
    Error::new(
        ErrorKind::Forbidden,
        format!(
            "the request was signed for '{}', more than {} minutes from the server's time '{}'",
            shown(date),
            DATE_SKEW_SECONDS_MAX / 60,
            httpdate::HttpDate::from(server)
        ),
    )
}

#[cold]
fn unauthorized(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unauthorized, message)
}

fn shown(text: &str) -> &str {
    cut(text, SHOWN_CHARS_MAX)
}

fn cut(text: &str, chars: usize) -> &str {
    let end = text
        .char_indices()
        .nth(chars)
        .map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::keys::EMULATOR_KEY;
    use super::*;

    const DATE: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
    const NOW: i64 = 1_767_225_600;

    fn key(seed: u8) -> AccountKey {
        AccountKey::parse(&BASE64.encode([seed; 64])).unwrap()
    }

    fn emulator() -> Authenticator {
        Authenticator::new(&AccountKeys::single(
            AccountKey::parse(EMULATOR_KEY).unwrap(),
        ))
    }

    fn encoded(signature: &str) -> String {
        let signature = signature
            .replace('+', "%2B")
            .replace('/', "%2F")
            .replace('=', "%3D");
        format!("type%3Dmaster%26ver%3D1.0%26sig%3D{signature}")
    }

    fn sign(key: &AccountKey, payload: &str) -> String {
        let mut signer = Signer::new_from_slice(key.bytes()).unwrap();
        signer.update(payload.as_bytes());
        encoded(&BASE64.encode(signer.finalize().into_bytes()))
    }

    fn check(
        authenticator: &Authenticator,
        verb: &str,
        path: &str,
        authorization: &str,
    ) -> Result<Access> {
        let path = ResourcePath::parse(path).unwrap();
        let headers = AuthHeaders {
            authorization: Some(authorization),
            x_ms_date: Some(DATE),
            date: Some("ignored when x-ms-date is there"),
        };
        authenticator.authenticate(verb, &path, &headers, NOW)
    }

    #[test]
    fn published_vectors_verify() {
        let table = [
            ("GET", "/", "PvSAkpCd8QmwlTkPJg3zttqzEEJwP1ep4++LW953aJU="),
            (
                "POST",
                "/dbs",
                "D4r5VwiEkkgEbhXvYlCJwnSVvx4fXhQcnEHFOLTo6Es=",
            ),
            (
                "POST",
                "/dbs/Db1/colls/C1/docs",
                "h+IdB4M+Wk9fJwmRKs1yusEcYemHts9AJ5zLiEk54HE=",
            ),
            (
                "POST",
                "/dbs/Db1/colls/C1/docs/",
                "h+IdB4M+Wk9fJwmRKs1yusEcYemHts9AJ5zLiEk54HE=",
            ),
            (
                "GET",
                "/dbs/Db1/colls/C1/docs/a%20b%2B%C3%BC",
                "Qb718rVOcZVsYkjzpxrm6nAwZLMPIDvjMOhIWtxcZHY=",
            ),
            (
                "PUT",
                "/offers/GSE2",
                "GF4xGV7W7BGPXzDs9ZsF79TVx1iweYWnVNTO1Sz+Vxc=",
            ),
            (
                "GET",
                "/dbs/Db1/colls/C1/pkranges",
                "bjEFzO6PP8YpyIeEmXfKV5m891T7xfDsshMFkDYPsIM=",
            ),
        ];
        let authenticator = emulator();
        for (verb, path, signature) in table {
            let plain = format!("type=master&ver=1.0&sig={signature}");
            let lower = encoded(signature)
                .replace("%3D", "%3d")
                .replace("%2B", "%2b");
            for authorization in [encoded(signature), plain, lower] {
                let access = check(&authenticator, verb, path, &authorization);
                assert_eq!(access, Ok(Access::Full), "{verb} {path} {authorization}");
            }
            let wrong = check(&authenticator, "DELETE", path, &encoded(signature)).unwrap_err();
            assert_eq!(wrong.status(), 401, "{verb} {path}");
        }
    }

    #[test]
    fn each_key_has_its_rights_and_can_be_replaced() {
        let keys = AccountKeys {
            primary: key(1),
            secondary: Some(key(2)),
            primary_readonly: Some(key(3)),
            secondary_readonly: Some(key(4)),
        };
        let authenticator = Authenticator::new(&keys);
        let payload = format!("get\ndocs\ndbs/d/colls/c\n{}\n\n", DATE.to_lowercase());
        let with = |seed: u8| {
            check(
                &authenticator,
                "GET",
                "/dbs/d/colls/c/docs",
                &sign(&key(seed), &payload),
            )
        };
        assert_eq!(with(1), Ok(Access::Full));
        assert_eq!(with(2), Ok(Access::Full));
        assert_eq!(with(3), Ok(Access::ReadOnly));
        assert_eq!(with(4), Ok(Access::ReadOnly));
        assert_eq!(with(5).unwrap_err().status(), 401);

        authenticator.replace_keys(&AccountKeys::single(key(5)));
        assert_eq!(with(1).unwrap_err().status(), 401);
        assert_eq!(with(5), Ok(Access::Full));
    }

    #[test]
    fn a_rid_path_may_be_signed_either_way() {
        let date = DATE.to_lowercase();
        let path = "/dbs/CrkDAA==/colls/CrkDANnXd2k=/pkranges";
        let key = AccountKey::parse(EMULATOR_KEY).unwrap();
        for link in ["dbs/CrkDAA==/colls/CrkDANnXd2k=", "crkdannxd2k="] {
            let authorization = sign(&key, &format!("get\npkranges\n{link}\n{date}\n\n"));
            assert_eq!(
                check(&emulator(), "GET", path, &authorization),
                Ok(Access::Full),
                "{link}"
            );
        }
        let named = sign(&key, &format!("get\npkranges\nc\n{date}\n\n"));
        assert!(check(&emulator(), "GET", "/dbs/d/colls/c/pkranges", &named).is_err());
    }

    #[test]
    fn the_date_header_is_signed_when_there_is_no_other() {
        let key = AccountKey::parse(EMULATOR_KEY).unwrap();
        let lower = DATE.to_lowercase();
        let authorization = sign(&key, &format!("get\ndbs\n\n\n{lower}\n"));
        for date in [DATE, lower.as_str()] {
            let headers = AuthHeaders {
                authorization: Some(&authorization),
                x_ms_date: None,
                date: Some(date),
            };
            let access = emulator().authenticate("GET", &ResourcePath::Databases, &headers, NOW);
            assert_eq!(access, Ok(Access::Full), "{date}");
        }
    }

    #[test]
    fn the_window_is_fifteen_minutes_both_ways() {
        let key = AccountKey::parse(EMULATOR_KEY).unwrap();
        let authorization = sign(&key, &format!("get\ndbs\n\n{}\n\n", DATE.to_lowercase()));
        let headers = AuthHeaders {
            authorization: Some(&authorization),
            x_ms_date: Some(DATE),
            date: None,
        };
        let at = |now| {
            emulator()
                .authenticate("GET", &ResourcePath::Databases, &headers, now)
                .err()
        };
        for now in [NOW, NOW - 900, NOW + 900] {
            assert_eq!(at(now), None, "{now}");
        }
        for now in [NOW - 901, NOW + 901, i64::MIN, i64::MAX] {
            let error = at(now).expect("out of the window");
            assert_eq!(error.status(), 403, "{now}");
            assert!(error.message.contains(DATE), "{}", error.message);
        }
        let message = at(NOW + 3600).unwrap().message;
        assert!(
            message.contains("Thu, 01 Jan 2026 01:00:00 GMT"),
            "{message}"
        );
    }

    #[test]
    fn each_failure_says_what_is_wrong() {
        let long = "x".repeat(5_000);
        let foreign = BASE64.encode([7; SIGNATURE_BYTES]);
        let table = [
            ("", "malformed"),
            ("Bearer abc", "malformed"),
            (
                "type%3Dresource%26ver%3D1%26sig%3Dabc%3Bdef%3B",
                "resource tokens",
            ),
            ("type=aad&ver=1.0&sig=eyJ.a.b", "Entra tokens"),
            ("type=sas&ver=1.0&sig=x", "'sas' is unknown"),
            ("type=master&ver=2.0&sig=x", "'2.0'"),
            ("type=master&sig=x", "version ''"),
            ("type=master&ver=1.0", "no signature"),
            ("type=master&ver=1.0&sig=", "no signature"),
            ("type=master&ver=1.0&sig=abc%", "'abc%' is not 32 bytes"),
            ("type=master&ver=1.0&sig=AAAA", "'AAAA' is not 32 bytes"),
            (
                &format!("type=master&ver=1.0&sig={foreign}&x=1"),
                "is not 32 bytes",
            ),
            (
                &format!("type=master&ver=1.0&sig={long}"),
                "is not 32 bytes",
            ),
            (&long, "malformed"),
            (
                &encoded(&foreign),
                "'get\ncolls\ndbs/d\nthu, 01 jan 2026 00:00:00 gmt\n\n'",
            ),
        ];
        for (authorization, fragment) in table {
            let error = check(&emulator(), "GET", "/dbs/d/colls", authorization).unwrap_err();
            assert_eq!(error.status(), 401, "{authorization}");
            assert!(
                error.message.contains(fragment),
                "{authorization}: {}",
                error.message
            );
            assert!(error.message.len() < 500, "{}", error.message);
        }
    }

    #[test]
    fn missing_or_broken_headers_are_named() {
        let authorization = encoded(&BASE64.encode([7; SIGNATURE_BYTES]));
        let long = "9".repeat(200);
        let table = [
            (None, Some(DATE), "the authorization header is missing"),
            (Some(authorization.as_str()), None, "x-ms-date"),
            (Some(authorization.as_str()), Some(""), "the date ''"),
            (
                Some(authorization.as_str()),
                Some("yesterday"),
                "'yesterday'",
            ),
            (
                Some(authorization.as_str()),
                Some(long.as_str()),
                "the date '999",
            ),
        ];
        for (authorization, x_ms_date, fragment) in table {
            let headers = AuthHeaders {
                authorization,
                x_ms_date,
                date: None,
            };
            let error = emulator()
                .authenticate("GET", &ResourcePath::Databases, &headers, NOW)
                .unwrap_err();
            assert_eq!(error.status(), 401, "{fragment}");
            assert!(error.message.contains(fragment), "{}", error.message);
        }
    }
}
