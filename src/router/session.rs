//! Session tokens: `<range>:<version>#<lsn>[#<region>=<lsn>…]`, several joined by commas.

use crate::model::error::{Error, ErrorKind, Result};

/// Our tokens carry no version history.
const VERSION: &str = "-1";

/// The highest LSN that a client has seen of each range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionToken(Vec<(u32, u64)>);

impl SessionToken {
    /// Reads the header; ranges whose id is no number of ours are ignored.
    pub fn parse(text: &str) -> Result<Self> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(parse_part).collect::<Result<Vec<_>>>().map(Self)
    }

    /// Refuses to answer from a range that is behind what the client has seen of it.
    pub fn check(&self, range_id: u32, lsn: u64) -> Result<()> {
        match self.0.iter().find(|(range, seen)| *range == range_id && *seen > lsn) {
            None => Ok(()),
            Some((_, seen)) => Err(Error::new(
                ErrorKind::SessionNotAvailable,
                format!("The read session is not available for the input session token: LSN {seen} is ahead of {lsn}"),
            )),
        }
    }
}

fn parse_part(part: &str) -> Result<(u32, u64)> {
    let invalid = || Error::bad_request(format!("the session token part '{part}' is not valid"));
    let (range, rest) = part.split_once(':').ok_or_else(invalid)?;
    // `<version>#<lsn>…`, or a bare LSN.
    let lsn = rest.split('#').nth(1).unwrap_or(rest);
    Ok((range.parse().unwrap_or(u32::MAX), lsn.parse().map_err(|_| invalid())?))
}

/// The token that an answer carries.
pub fn token(range_id: u32, lsn: u64) -> String {
    format!("{range_id}:{VERSION}#{lsn}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_clients_send() {
        for (text, expected) in [
            ("0:-1#42", vec![(0, 42)]),
            ("0:1#42#0=42#1=40,3:-1#7", vec![(0, 42), (3, 7)]),
            ("0:42", vec![(0, 42)]),
            ("", vec![]),
        ] {
            assert_eq!(SessionToken::parse(text).unwrap().0, expected, "{text}");
        }
        for text in ["42", "0:-1#x", "0:"] {
            assert!(SessionToken::parse(text).unwrap_err().message.contains(text), "{text}");
        }
    }

    #[test]
    fn a_token_ahead_of_the_range_is_refused() {
        let token = SessionToken::parse(&token(2, 10)).unwrap();
        assert!(token.check(2, 10).is_ok());
        assert!(token.check(1, 0).is_ok());
        assert_eq!(token.check(2, 9).unwrap_err().substatus(), 1002);
    }
}
