//! The authorization header: `type=master&ver=1.0&sig=…`, percent-encoded by all clients.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{shown, unauthorized};
use crate::gateway::protocol::resource_path::hex;
use crate::model::error::Result;

/// Bytes of a signature: one SHA-256.
pub const SIGNATURE_BYTES: usize = 32;
/// Bytes of a decoded master token: `type=master&ver=1.0&sig=` and 44 characters, with room.
const TOKEN_BYTES_MAX: usize = 128;
/// What the header begins with as the SDKs write it.
const USUAL_START: &[u8] = b"type%3Dmaster%26ver%3D1.0%26sig%3D";

/// The signature of a master token, percent-encoded or not.
pub fn master_signature(authorization: &str) -> Result<[u8; SIGNATURE_BYTES]> {
    let header = authorization.trim().as_bytes();
    let mut buffer = [0; TOKEN_BYTES_MAX];
    if let Some((start, signature)) = header.split_at_checked(USUAL_START.len())
        && start.eq_ignore_ascii_case(USUAL_START)
    {
        let (signature, complete) = percent_decoded(signature, &mut buffer);
        return signature_bytes(signature, complete);
    }
    let (token, complete) = percent_decoded(header, &mut buffer);
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
    check_kind(kind)?;
    if version != Some(b"1.0") {
        let version = String::from_utf8_lossy(version.unwrap_or_default());
        let version = shown(&version);
        return Err(unauthorized(format!(
            "the authorization version '{version}' is not '1.0'"
        )));
    }
    signature_bytes(signature.unwrap_or_default(), complete)
}

fn check_kind(kind: Option<&[u8]>) -> Result<()> {
    let message = match kind {
        Some(b"master") => return Ok(()),
        Some(b"resource") => {
            "resource tokens (type=resource) are not supported: sign with an account key".to_owned()
        }
        Some(b"aad") => {
            "Entra tokens (type=aad) are not supported: sign with an account key".to_owned()
        }
        Some(other) => format!(
            "the authorization type '{}' is unknown: sign with an account key (type=master)",
            shown(&String::from_utf8_lossy(other))
        ),
        None => "the authorization header is malformed: 'type=master&ver=1.0&sig=…' is expected, \
                 percent-encoded"
            .to_owned(),
    };
    Err(unauthorized(message))
}

/// `complete` is false when only the beginning of the signature is there.
fn signature_bytes(signature: &[u8], complete: bool) -> Result<[u8; SIGNATURE_BYTES]> {
    let mut bytes = [0; SIGNATURE_BYTES];
    match BASE64.decode_slice(signature, &mut bytes) {
        Ok(SIGNATURE_BYTES) if complete => Ok(bytes),
        _ if signature.is_empty() => Err(unauthorized(
            "the authorization header has no signature (sig=…)",
        )),
        _ => Err(unauthorized(format!(
            "the signature '{}' is not {SIGNATURE_BYTES} bytes in base64",
            shown(&String::from_utf8_lossy(signature))
        ))),
    }
}

/// Decodes `%XX` into the buffer as far as it goes; false when it was too short. Malformed
/// escapes stay as they are: they fail as base64 with a better message.
fn percent_decoded<'b>(mut text: &[u8], buffer: &'b mut [u8]) -> (&'b [u8], bool) {
    let mut length = 0;
    while !text.is_empty() {
        let escaped;
        let (piece, rest) = match escape(text) {
            Some((byte, rest)) => {
                escaped = [byte];
                (&escaped[..], rest)
            }
            None => {
                let next = text.iter().skip(1).position(|byte| *byte == b'%');
                text.split_at(next.map_or(text.len(), |skipped| skipped + 1))
            }
        };
        let Some(target) = buffer.get_mut(length..length + piece.len()) else {
            // What fits is enough to say what is wrong.
            let target = buffer.iter_mut().skip(length);
            target.zip(piece).for_each(|(slot, byte)| *slot = *byte);
            return (buffer, false);
        };
        target.copy_from_slice(piece);
        length += piece.len();
        text = rest;
    }
    (buffer.get(..length).unwrap_or_default(), true)
}

fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    match text {
        [b'%', high, low, rest @ ..] => Some((hex(*high)? << 4 | hex(*low)?, rest)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_header_panics(header in "((type|ver|sig|master|1.0|%3D|%26|=|&|%|\\PC)){0,40}") {
            prop_assert!(master_signature(&header).is_err());
        }
    }

    #[test]
    fn escapes_are_decoded_as_far_as_the_buffer_goes() {
        let table: [(&str, &str, bool); 12] = [
            ("", "", true),
            ("abcdefgh", "abcdefgh", true),
            ("abcdefghi", "abcdefgh", false),
            ("a%3Db", "a=b", true),
            ("%3d%3D", "==", true),
            ("a+b", "a+b", true),
            ("%", "%", true),
            ("%3", "%3", true),
            ("%zz%3D", "%zz=", true),
            ("%%3D", "%=", true),
            ("abcdefg%3D", "abcdefg=", true),
            ("abcdefgh%3D", "abcdefgh", false),
        ];
        for (text, expected, complete) in table {
            let mut buffer = [0; 8];
            let found = percent_decoded(text.as_bytes(), &mut buffer);
            assert_eq!(found, (expected.as_bytes(), complete), "{text}");
        }
    }
}
