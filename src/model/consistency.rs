//! Consistency levels, strongest first.

use serde::{Deserialize, Serialize};

use super::{
    error::{Error, Result},
    json,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Consistency {
    /// Reads see all that anybody was told of before they began.
    Strong,
    /// Reads are behind by a bounded number of writes and a bounded time.
    BoundedStaleness,
    /// A client sees what it has written and what it has read.
    Session,
    /// Reads see writes in their order.
    ConsistentPrefix,
    Eventual,
}

impl Consistency {
    const ALL: [Self; 5] = [
        Self::Strong,
        Self::BoundedStaleness,
        Self::Session,
        Self::ConsistentPrefix,
        Self::Eventual,
    ];

    /// The name that clients know.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strong => "Strong",
            Self::BoundedStaleness => "BoundedStaleness",
            Self::Session => "Session",
            Self::ConsistentPrefix => "ConsistentPrefix",
            Self::Eventual => "Eventual",
        }
    }

    pub fn parse(name: &str) -> Result<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|level| level.name() == name).ok_or_else(|| {
            Error::bad_request(format!(
                "the consistency level '{}' is not known",
                json::shorten(name)
            ))
        })
    }

    /// The level of a request to an account of this level: it may ask for a weaker one.
    pub fn relaxed_to(self, asked: Option<Self>) -> Result<Self> {
        match asked {
            None => Ok(self),
            Some(asked) if asked < self => Err(Error::bad_request(format!(
                "the consistency level '{}' is stronger than the account's, which is '{}'",
                asked.name(),
                self.name()
            ))),
            Some(asked) => Ok(asked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_may_ask_for_a_weaker_level_only() {
        for (at, account) in Consistency::ALL.into_iter().enumerate() {
            assert_eq!(Consistency::parse(account.name()), Ok(account));
            assert_eq!(account.relaxed_to(None), Ok(account));
            for asked in &Consistency::ALL[at..] {
                assert_eq!(account.relaxed_to(Some(*asked)), Ok(*asked));
            }
            for asked in &Consistency::ALL[..at] {
                let refusal = account.relaxed_to(Some(*asked)).unwrap_err().message;
                assert!(refusal.contains(asked.name()), "{refusal}");
                assert!(refusal.contains(account.name()), "{refusal}");
            }
        }
    }

    #[test]
    fn an_unknown_level_is_named() {
        let refusal = Consistency::parse("Sloppy").unwrap_err();
        assert_eq!(refusal.status(), 400);
        assert!(refusal.message.contains("Sloppy"), "{refusal}");
    }
}
