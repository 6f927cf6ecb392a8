//! Signs requests with the account's key, as clients do.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::clock;
use crate::model::error::{Error, Result};

/// The key that every emulator takes, and a node without a key file; no secret.
pub const EMULATOR_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// The servers that the driver starts itself do not look at it.
const LOCAL_HOST: &str = "127.0.0.1";

/// Whole seconds since 1970 on this machine's clock, which the servers share.
pub fn unix_seconds() -> u64 {
    clock::wall().as_secs()
}

/// Seconds since 1970 on this machine's clock, with their fraction.
pub fn unix_time() -> f64 {
    clock::wall().as_secs_f64()
}

/// A prepared signature state, and the server that is addressed; a clone of it is cheap.
#[derive(Clone)]
pub struct Signer {
    prepared: Hmac<Sha256>,
    host: Arc<str>,
}

impl Signer {
    pub fn new(key_base64: &str) -> Result<Self> {
        let key = BASE64
            .decode(key_base64)
            .map_err(|_| Error::bad_request("the key is not base64"))?;
        let prepared = Hmac::new_from_slice(&key).expect("HMAC takes keys of every length");
        Ok(Self {
            prepared,
            host: LOCAL_HOST.into(),
        })
    }

    /// The same for a server with this name, and its port unless it is the usual one.
    pub fn for_host(&self, host: &str) -> Self {
        Self {
            prepared: self.prepared.clone(),
            host: host.into(),
        }
    }

    /// What the host header says.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Appends the `x-ms-date` and `authorization` header lines for a request of this second.
    pub fn write_headers(&self, target: &mut Vec<u8>, signed: &Signed<'_>, second: u64) {
        DATE.with_borrow_mut(|date| {
            date.be(second);
            let signature = self.signature(signed, &date.lower);
            target.extend_from_slice(b"x-ms-date: ");
            target.extend_from_slice(date.shown.as_bytes());
            target.extend_from_slice(b"\r\nauthorization: type%3Dmaster%26ver%3D1.0%26sig%3D");
            for byte in signature {
                match byte {
                    b'+' => target.extend_from_slice(b"%2B"),
                    b'/' => target.extend_from_slice(b"%2F"),
                    b'=' => target.extend_from_slice(b"%3D"),
                    other => target.push(other),
                }
            }
            target.extend_from_slice(b"\r\n");
        });
    }

    fn signature(&self, signed: &Signed<'_>, date_lower: &str) -> [u8; SIGNATURE_CHARS] {
        let mut state = self.prepared.clone();
        for part in [
            signed.verb_lower,
            signed.resource_type,
            signed.link,
            date_lower,
        ] {
            state.update(part.as_bytes());
            state.update(b"\n");
        }
        state.update(b"\n");
        let mut signature = [0; SIGNATURE_CHARS];
        BASE64
            .encode_slice(state.finalize().into_bytes(), &mut signature)
            .expect("32 bytes are 44 characters in base64");
        signature
    }
}

/// Characters of 32 bytes in base64.
const SIGNATURE_CHARS: usize = 44;

/// The date of a second as requests show it and as signatures cover it. Requests are many in a
/// second, and spelling it out costs more than the rest of their heads.
#[derive(Default)]
struct Date {
    second: u64,
    shown: String,
    lower: String,
}

thread_local! {
    static DATE: RefCell<Date> = RefCell::default();
}

impl Date {
    fn be(&mut self, second: u64) {
        if self.second != second || self.shown.is_empty() {
            self.second = second;
            self.shown = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            self.lower = self.shown.to_ascii_lowercase();
        }
    }
}

/// What a signature covers besides the date.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    pub verb_lower: &'a str,
    pub resource_type: &'a str,
    pub link: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thu, 01 Jan 2026 00:00:00 GMT
    const SECOND: u64 = 1_767_225_600;

    #[test]
    fn signatures_equal_the_protocols_vectors() {
        let signer = Signer::new(EMULATOR_KEY).unwrap();
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(SECOND));
        let date = date.to_ascii_lowercase();
        let table = [
            (
                "get",
                "",
                "",
                "PvSAkpCd8QmwlTkPJg3zttqzEEJwP1ep4++LW953aJU=",
            ),
            (
                "post",
                "dbs",
                "",
                "D4r5VwiEkkgEbhXvYlCJwnSVvx4fXhQcnEHFOLTo6Es=",
            ),
            (
                "post",
                "docs",
                "dbs/Db1/colls/C1",
                "h+IdB4M+Wk9fJwmRKs1yusEcYemHts9AJ5zLiEk54HE=",
            ),
            (
                "get",
                "docs",
                "dbs/Db1/colls/C1/docs/a b+ü",
                "Qb718rVOcZVsYkjzpxrm6nAwZLMPIDvjMOhIWtxcZHY=",
            ),
        ];
        for (verb_lower, resource_type, link, expected) in table {
            let signed = Signed {
                verb_lower,
                resource_type,
                link,
            };
            let signature = signer.signature(&signed, &date);
            assert_eq!(signature, expected.as_bytes(), "{signed:?}");
        }
    }

    #[test]
    fn headers_are_as_on_the_wire() {
        let signer = Signer::new(EMULATOR_KEY).unwrap();
        let signed = Signed {
            verb_lower: "post",
            resource_type: "docs",
            link: "dbs/Db1/colls/C1",
        };
        let written = |second| {
            let mut text = Vec::new();
            signer.write_headers(&mut text, &signed, second);
            String::from_utf8(text).unwrap()
        };
        let first = written(SECOND);
        assert_ne!(written(SECOND + 1), first);
        assert_eq!(written(SECOND), first);
        assert_eq!(
            first,
            "x-ms-date: Thu, 01 Jan 2026 00:00:00 GMT\r\nauthorization: \
             type%3Dmaster%26ver%3D1.0%26sig%3Dh%2BIdB4M%2BWk9fJwmRKs1yusEcYemHts9AJ5zLiEk54HE%3D\r\n"
        );
    }
}
