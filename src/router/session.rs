//! Session tokens: `<range>:<version>#<lsn>[#<region>=<lsn>…]`, several joined by commas.

use crate::model::error::{Error, ErrorKind, Result};

/// The highest LSN that a client has seen of each range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionToken(Vec<Part>);

/// In the place of a range id that is no number of ours.
const NO_RANGE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    range_id: u32,
    /// `None` in the oldest form, which has an LSN only.
    version: Option<i64>,
    lsn: u64,
}

impl SessionToken {
    /// Reads the header; ranges whose id is no number of ours are ignored.
    pub fn parse(text: &str) -> Result<Self> {
        text.split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(parse_part)
            .collect::<Result<Vec<_>>>()
            .map(Self)
    }

    /// Refuses to answer by a catalog that is behind what the client has seen: it knows of a range that is above all that were known when the catalog was made.
    pub fn check_known(&self, version: i64, highest: u32) -> Result<()> {
        let ahead = |part: &&Part| {
            part.range_id > highest && part.range_id != NO_RANGE && part.version == Some(version)
        };
        match self.0.iter().find(ahead) {
            None => Ok(()),
            Some(Part { range_id, .. }) => Err(Error::new(
                ErrorKind::SessionNotAvailable,
                format!(
                    "The read session is not available for the input session token: the partition key range {range_id} is not known here yet"
                ),
            )),
        }
    }

    /// Refuses to answer from a range that is behind what the client has seen of it. A part with another version is about
    /// another container, one that was deleted and made again under the same name.
    pub fn check(&self, range_id: u32, version: i64, lsn: u64) -> Result<()> {
        let ahead = |part: &&Part| {
            part.range_id == range_id
                && part.lsn > lsn
                && part.version.is_none_or(|theirs| theirs == version)
        };
        match self.0.iter().find(ahead) {
            None => Ok(()),
            Some(Part { lsn: seen, .. }) => Err(Error::new(
                ErrorKind::SessionNotAvailable,
                format!(
                    "The read session is not available for the input session token: LSN {seen} is ahead of {lsn}"
                ),
            )),
        }
    }
}

fn parse_part(part: &str) -> Result<Part> {
    let invalid = || Error::bad_request(format!("the session token part '{part}' is not valid"));
    let (range, rest) = part.split_once(':').ok_or_else(invalid)?;
    let (version, lsn) = match rest.split_once('#') {
        None => (None, rest),
        Some((version, rest)) => (
            Some(version.parse().map_err(|_| invalid())?),
            rest.split('#').next().unwrap_or(rest),
        ),
    };
    Ok(Part {
        range_id: range.parse().unwrap_or(NO_RANGE),
        version,
        lsn: lsn.parse().map_err(|_| invalid())?,
    })
}

/// Room for the token of one range.
const TOKEN_BYTES_USUAL: usize = 32;

/// The ranges that an answer came from, each with an LSN that the answer is at least as new as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The first of them, nearly always the only one.
    pub range_id: u32,
    pub lsn: u64,
    more: Vec<(u32, u64)>,
}

impl Served {
    pub fn by(range_id: u32, lsn: u64) -> Self {
        Self {
            range_id,
            lsn,
            more: Vec::new(),
        }
    }

    /// By another range, too. Of a range that is there already the later LSN stays: what was written is to be seen again.
    pub fn and_by(&mut self, range_id: u32, lsn: u64) {
        let known = if self.range_id == range_id {
            Some(&mut self.lsn)
        } else {
            let mut more = self.more.iter_mut();
            more.find(|(id, _)| *id == range_id).map(|(_, lsn)| lsn)
        };
        match known {
            Some(known) => *known = lsn.max(*known),
            None => self.more.push((range_id, lsn)),
        }
    }

    /// The session token that the answer carries: a part for every range, as clients take them apart.
    pub fn token(&self, version: i64) -> String {
        let mut token = String::with_capacity(TOKEN_BYTES_USUAL);
        let mut digits = itoa::Buffer::new();
        let first = (self.range_id, self.lsn);
        for (range_id, lsn) in [&first].into_iter().chain(&self.more) {
            if !token.is_empty() {
                token.push(',');
            }
            token.push_str(digits.format(*range_id));
            token.push(':');
            token.push_str(digits.format(version));
            token.push('#');
            token.push_str(digits.format(*lsn));
        }
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(range_id: u32, version: Option<i64>, lsn: u64) -> Part {
        Part {
            range_id,
            version,
            lsn,
        }
    }

    #[test]
    fn reads_what_clients_send() {
        for (text, expected) in [
            ("0:-1#42", vec![part(0, Some(-1), 42)]),
            (
                "0:1#42#0=42#1=40,3:-1#7",
                vec![part(0, Some(1), 42), part(3, Some(-1), 7)],
            ),
            ("0:42", vec![part(0, None, 42)]),
            ("", vec![]),
        ] {
            assert_eq!(SessionToken::parse(text).unwrap().0, expected, "{text}");
        }
        for text in ["42", "0:-1#x", "0:", "0:x#1"] {
            assert!(
                SessionToken::parse(text)
                    .unwrap_err()
                    .message
                    .contains(text),
                "{text}"
            );
        }
    }

    #[test]
    fn a_token_ahead_of_the_range_is_refused() {
        let token = SessionToken::parse(&Served::by(2, 10).token(7)).unwrap();
        assert!(token.check(2, 7, 10).is_ok());
        assert!(token.check(1, 7, 0).is_ok());
        assert_eq!(token.check(2, 7, 9).unwrap_err().substatus(), 1002);
    }

    #[test]
    fn a_token_of_a_range_that_is_not_known_yet_is_refused() {
        let token = SessionToken::parse("0:7#3,2:7#10,x:7#1,9:8#1").unwrap();
        assert!(token.check_known(7, 2).is_ok(), "9 is of another container");
        assert_eq!(token.check_known(7, 1).unwrap_err().substatus(), 1002);
    }

    #[test]
    fn a_token_names_every_range_that_answered_once() {
        let mut served = Served::by(3, 10);
        for (range_id, lsn) in [(1, 5), (3, 12), (1, 4), (2, 0)] {
            served.and_by(range_id, lsn);
        }
        assert_eq!(served.token(7), "3:7#12,1:7#5,2:7#0");
        let token = SessionToken::parse(&served.token(7)).unwrap();
        assert!(token.check(1, 7, 5).is_ok());
        assert!(token.check(1, 7, 4).is_err());
    }

    #[test]
    fn a_token_of_a_deleted_container_is_of_no_concern_to_its_successor() {
        let token = SessionToken::parse(&Served::by(0, 10).token(7)).unwrap();
        assert!(token.check(0, 8, 0).is_ok());
    }
}
