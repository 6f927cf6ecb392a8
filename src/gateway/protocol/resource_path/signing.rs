//! What a client signs for a path: a resource type and a link.

use std::fmt;

use super::{ResourcePath, ScriptKind};

/// Pieces of the longest link: three keywords and three names.
const LINK_PIECES: usize = 6;
/// Characters of a database's resource id: four bytes in padded base64.
const DATABASE_RID_CHARS: usize = 8;

impl ResourcePath<'_> {
    /// What a client signs for this path.
    pub fn signing(&self) -> Signing<'_> {
        match self {
            Self::Account => Signing::named("", []),
            Self::Databases => Signing::named("dbs", []),
            Self::Database { db } => Signing::named("dbs", ["dbs/", db]),
            Self::Containers { db } => Signing::named("colls", ["dbs/", db]),
            Self::Container { db, coll } | Self::PartitionKeyDelete { db, coll } => {
                Signing::named("colls", ["dbs/", db, "/colls/", coll])
            }
            Self::Items { db, coll } => Signing::named("docs", ["dbs/", db, "/colls/", coll]),
            Self::Item { db, coll, id } => {
                Signing::named("docs", ["dbs/", db, "/colls/", coll, "/docs/", id])
            }
            Self::PartitionKeyRanges { db, coll } => {
                Signing::named("pkranges", ["dbs/", db, "/colls/", coll])
            }
            Self::Scripts { db, coll, kind } => {
                Signing::named(kind.keyword(), ["dbs/", db, "/colls/", coll])
            }
            Self::Script { db, coll, kind, id } => {
                let keyword = match kind {
                    ScriptKind::StoredProcedure => "/sprocs/",
                    ScriptKind::Trigger => "/triggers/",
                    ScriptKind::UserDefinedFunction => "/udfs/",
                };
                Signing::named(kind.keyword(), ["dbs/", db, "/colls/", coll, keyword, id])
            }
            Self::Conflicts { db, coll } => {
                Signing::named("conflicts", ["dbs/", db, "/colls/", coll])
            }
            Self::Conflict { db, coll, id } => Signing::named(
                "conflicts",
                ["dbs/", db, "/colls/", coll, "/conflicts/", id],
            ),
            Self::Users { db } => Signing::named("users", ["dbs/", db]),
            Self::User { db, user } => Signing::named("users", ["dbs/", db, "/users/", user]),
            Self::Permissions { db, user } => {
                Signing::named("permissions", ["dbs/", db, "/users/", user])
            }
            Self::Permission { db, user, id } => Signing::named(
                "permissions",
                ["dbs/", db, "/users/", user, "/permissions/", id],
            ),
            Self::Offers => Signing::named("offers", []),
            Self::Offer { rid } => Signing {
                resource_type: "offers",
                link: Link::Rid(rid),
                alternative: None,
            },
            Self::Unknown { path } => unknown_signing(path),
        }
    }
}

/// The general rule, for paths that this node does not serve: `…/keyword` is a feed of its
/// parent, `…/keyword/name` is a resource.
fn unknown_signing(path: &str) -> Signing<'_> {
    let (parent, last) = path.rsplit_once('/').unwrap_or(("", path));
    if path.split('/').count() % 2 == 1 {
        return Signing::named(last, [parent]);
    }
    let resource_type = parent.rsplit('/').next().unwrap_or("");
    Signing::named(resource_type, [path])
}

/// The parts of a signature that come from the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signing<'a> {
    /// Lower case.
    pub resource_type: &'a str,
    pub link: Link<'a>,
    /// What a client signs that believes the database segment to be a RID: the name form is
    /// tried first, this one only if it failed.
    pub alternative: Option<Link<'a>>,
}

impl<'a> Signing<'a> {
    /// For a link that has no other form.
    pub fn whole(resource_type: &'a str, link: &'a str) -> Self {
        Self::named(resource_type, [link])
    }

    /// `pieces` alternate between keywords and names.
    fn named<const N: usize>(resource_type: &'a str, pieces: [&'a str; N]) -> Self {
        const { assert!(N <= LINK_PIECES) };
        // Clients decide by the database segment alone whether a whole path is made of RIDs.
        let alternative = match (pieces.get(1), pieces.last()) {
            (Some(db), Some(last)) if is_database_rid(db) => Some(Link::Rid(last)),
            _ => None,
        };
        let mut padded = [""; LINK_PIECES];
        padded
            .iter_mut()
            .zip(pieces)
            .for_each(|(slot, piece)| *slot = piece);
        Self {
            resource_type,
            link: Link::Name(padded),
            alternative,
        }
    }
}

/// The signed resource link; `Display` writes it as it is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link<'a> {
    /// The decoded path in pieces, in its own case.
    Name([&'a str; LINK_PIECES]),
    /// One RID, which is signed in lower case.
    Rid(&'a str),
}

impl fmt::Display for Link<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(pieces) => pieces.iter().try_for_each(|piece| f.write_str(piece)),
            Self::Rid(rid) => f.write_str(&rid.to_lowercase()),
        }
    }
}

/// Whether clients take a database segment for a RID: eight characters of base64 (with `-` for
/// `/`) that hold four bytes.
fn is_database_rid(segment: &str) -> bool {
    let Some(digits) = segment.strip_suffix("==") else {
        return false;
    };
    segment.len() == DATABASE_RID_CHARS
        && digits
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(path: &str) -> (String, String) {
        let path = ResourcePath::parse(path).unwrap();
        let signing = path.signing();
        (signing.resource_type.to_owned(), signing.link.to_string())
    }

    #[test]
    fn every_path_signs_its_type_and_link() {
        let table = [
            ("/", "", ""),
            ("", "", ""),
            ("/dbs", "dbs", ""),
            ("/dbs/", "dbs", ""),
            ("/dbs/d", "dbs", "dbs/d"),
            ("/dbs/d/", "dbs", "dbs/d"),
            ("/dbs/d/colls", "colls", "dbs/d"),
            ("/dbs/D/colls/C/", "colls", "dbs/D/colls/C"),
            ("/dbs/d/colls/c/docs", "docs", "dbs/d/colls/c"),
            ("/dbs/d/colls/c/docs/X/", "docs", "dbs/d/colls/c/docs/X"),
            ("/dbs/d/colls/c/pkranges", "pkranges", "dbs/d/colls/c"),
            ("/dbs/d/colls/c/sprocs", "sprocs", "dbs/d/colls/c"),
            (
                "/dbs/d/colls/c/sprocs/s",
                "sprocs",
                "dbs/d/colls/c/sprocs/s",
            ),
            (
                "/dbs/d/colls/c/triggers/t",
                "triggers",
                "dbs/d/colls/c/triggers/t",
            ),
            ("/dbs/d/colls/c/udfs/u", "udfs", "dbs/d/colls/c/udfs/u"),
            ("/dbs/d/colls/c/conflicts", "conflicts", "dbs/d/colls/c"),
            (
                "/dbs/d/colls/c/conflicts/x",
                "conflicts",
                "dbs/d/colls/c/conflicts/x",
            ),
            ("/dbs/d/users", "users", "dbs/d"),
            ("/dbs/d/users/u", "users", "dbs/d/users/u"),
            ("/dbs/d/users/u/permissions", "permissions", "dbs/d/users/u"),
            (
                "/dbs/d/users/u/permissions/p",
                "permissions",
                "dbs/d/users/u/permissions/p",
            ),
            ("/offers", "offers", ""),
            ("/offers/GSE2", "offers", "gse2"),
            (
                "/dbs/d/colls/c/operations/partitionkeydelete",
                "colls",
                "dbs/d/colls/c",
            ),
            (
                "/dbs/Db1/colls/C1/docs/a%20b%2B%C3%BC",
                "docs",
                "dbs/Db1/colls/C1/docs/a b+ü",
            ),
            ("/dbs/d/colls/c/docs/a+b", "docs", "dbs/d/colls/c/docs/a+b"),
            (
                "/dbs/d/clientencryptionkeys",
                "clientencryptionkeys",
                "dbs/d",
            ),
            (
                "/dbs/d/clientencryptionkeys/k",
                "clientencryptionkeys",
                "dbs/d/clientencryptionkeys/k",
            ),
            ("/media", "media", ""),
            (
                "/dbs/d/colls/c/docs/x/attachments",
                "attachments",
                "dbs/d/colls/c/docs/x",
            ),
        ];
        for (path, resource_type, link) in table {
            assert_eq!(signed(path), (resource_type.into(), link.into()), "{path}");
        }
    }

    #[test]
    fn a_rid_shaped_database_has_a_second_form() {
        let table = [
            (
                "/dbs/CrkDAA==/colls/CrkDANnXd2k=/pkranges",
                Some("crkdannxd2k="),
            ),
            ("/dbs/CrkDAA==", Some("crkdaa==")),
            // Python signs so for a database that only looks like a RID.
            ("/dbs/abcdef==/colls/Cars", Some("cars")),
            ("/dbs/database/colls/CrkDANnXd2k=", None),
            ("/dbs/abc.ef==", None),
            ("/dbs", None),
        ];
        for (path, expected) in table {
            let path = ResourcePath::parse(path).unwrap();
            let alternative = path.signing().alternative.map(|link| link.to_string());
            assert_eq!(alternative.as_deref(), expected, "{path:?}");
        }
    }
}
