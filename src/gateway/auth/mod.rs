//! Master key signatures: who signed this request, and may they write?
//!
//! The happy path works on the stack: header and payload fit small buffers, a prepared HMAC state
//! is copied, and the date is parsed once a second and thread.

mod date;
pub mod host_policy;
pub mod keys;
mod payload;
mod token;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::ArcSwap;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use self::keys::{AccountKey, AccountKeys};
use self::payload::Payload;
use self::token::SIGNATURE_BYTES;
use super::protocol::resource_path::{ResourcePath, Signing};
use super::protocol::rights::Access;
use crate::model::account::ORDER_RESOURCE_TYPE;
use crate::model::error::{Error, ErrorKind, Result};

/// How far the date of a request may be from ours, either way.
pub const DATE_SKEW_SECONDS_MAX: i64 = 15 * 60;

/// Characters of a foreign value that an error message repeats.
const SHOWN_CHARS_MAX: usize = 100;
/// Characters of the payload that a mismatch repeats: enough for names of the usual lengths.
const SHOWN_PAYLOAD_CHARS_MAX: usize = 2_000;
/// The last second of the year 9999, the last that an HTTP date can show.
const SHOWN_SECONDS_MAX: u64 = 253_402_300_799;

type Signer = Hmac<Sha256>;

/// The request headers that a signature is made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuthHeaders<'a> {
    pub authorization: Option<&'a str>,
    pub x_ms_date: Option<&'a str>,
    pub date: Option<&'a str>,
}

/// Which of the two headers holds the signed date.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SignedDate<'a> {
    XMsDate(&'a str),
    Date(&'a str),
}

impl<'a> SignedDate<'a> {
    fn of(headers: &AuthHeaders<'a>) -> Result<Self> {
        match (headers.x_ms_date, headers.date) {
            (Some(date), _) => Ok(Self::XMsDate(date)),
            (None, Some(date)) => Ok(Self::Date(date)),
            (None, None) => Err(unauthorized(
                "both the x-ms-date and the date header are missing",
            )),
        }
    }

    const fn text(self) -> &'a str {
        match self {
            Self::XMsDate(text) | Self::Date(text) => text,
        }
    }
}

/// Checks signatures against the account's keys, which can be replaced while it is in use.
pub struct Authenticator {
    signers: ArcSwap<Signers>,
}

/// The keys in force, prepared.
struct Signers {
    prepared: Vec<(Signer, Access)>,
    well_known: bool,
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

    /// Whether the emulator's well-known key is in force: everybody can sign with it.
    pub fn takes_well_known_key(&self) -> bool {
        self.signers.load().well_known
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
        self.signed_by(verb, path.signing(), headers, now)
    }

    /// The same for an order on the health port: `link` is its path without the leading slash.
    pub fn authenticate_order(
        &self,
        verb: &str,
        link: &str,
        headers: &AuthHeaders<'_>,
        now: i64,
    ) -> Result<Access> {
        let signing = Signing::whole(ORDER_RESOURCE_TYPE, link);
        self.signed_by(verb, signing, headers, now)
    }

    fn signed_by(
        &self,
        verb: &str,
        signing: Signing<'_>,
        headers: &AuthHeaders<'_>,
        now: i64,
    ) -> Result<Access> {
        let Some(authorization) = headers.authorization else {
            return Err(unauthorized("the authorization header is missing"));
        };
        let signature = token::master_signature(authorization)?;
        let date = SignedDate::of(headers)?;
        let signed_at = date::seconds(date.text())?;
        let Signing {
            resource_type,
            link,
            alternative,
        } = signing;

        let signers = self.signers.load();
        let payload = Payload::new(verb, resource_type, &link, date);
        let access = signer_of(&signers, &payload, &signature)
            .or_else(|| {
                let payload = Payload::new(verb, resource_type, &alternative?, date);
                signer_of(&signers, &payload, &signature)
            })
            .ok_or_else(|| mismatch(&payload))?;
        if signed_at.abs_diff(now) > DATE_SKEW_SECONDS_MAX.unsigned_abs() {
            return Err(outside_window(date.text(), now));
        }
        Ok(access)
    }
}

fn signers(keys: &AccountKeys) -> Signers {
    let signer = |key: &AccountKey| {
        Signer::new_from_slice(key.bytes()).expect("HMAC takes keys of every length")
    };
    Signers {
        prepared: keys
            .iter()
            .map(|(key, access)| (signer(key), access))
            .collect(),
        well_known: keys.iter().any(|(key, _)| key.is_well_known()),
    }
}

/// The rights of the first key that gives this signature.
fn signer_of(
    signers: &Signers,
    payload: &Payload,
    signature: &[u8; SIGNATURE_BYTES],
) -> Option<Access> {
    signers.prepared.iter().find_map(|(prepared, access)| {
        let mut signer = prepared.clone();
        signer.update(payload.bytes());
        let expected: [u8; SIGNATURE_BYTES] = signer.finalize().into_bytes().into();
        bool::from(words(&expected).ct_eq(&words(signature))).then_some(*access)
    })
}

/// In eights, so that few comparisons are made.
fn words(signature: &[u8; SIGNATURE_BYTES]) -> [u64; SIGNATURE_BYTES / 8] {
    let (eights, _) = signature.as_chunks();
    std::array::from_fn(|at| eights.get(at).copied().map_or(0, u64::from_ne_bytes))
}

#[cold]
fn mismatch(payload: &Payload) -> Error {
    let text = String::from_utf8_lossy(payload.bytes());
    unauthorized(format!(
        "the signature does not match: the key is wrong, or the signed text differs from the \
         text that this server signed: '{}'",
        cut(&text, SHOWN_PAYLOAD_CHARS_MAX)
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
    use super::keys::EMULATOR_KEY;
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

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
