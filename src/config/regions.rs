//! The regions that client libraries know.

use serde::Deserialize as _;
use serde::de::{Deserializer, Error};

use crate::model::likeness::likeness;

/// As Microsoft.Azure.Cosmos 3.64 lists them. Clients compare the region of the account with this list
/// to sort regions by distance, and some fail on a name that is not in it.
const REGIONS: [&str; 101] = [
    "Australia Central",
    "Australia Central 2",
    "Australia East",
    "Australia Southeast",
    "Austria East",
    "Belgium Central",
    "Bleu France Central",
    "Bleu France South",
    "Brazil South",
    "Brazil Southeast",
    "Canada Central",
    "Canada East",
    "Central India",
    "Central US",
    "Central US EUAP",
    "Chile Central",
    "China East",
    "China East 2",
    "China East 3",
    "China North",
    "China North 2",
    "China North 3",
    "Delos Cloud Germany Central",
    "Delos Cloud Germany North",
    "Denmark East",
    "East Asia",
    "East US",
    "East US 2",
    "East US 2 EUAP",
    "East US 3",
    "East US SLV",
    "France Central",
    "France South",
    "Germany Central",
    "Germany North",
    "Germany Northeast",
    "Germany West Central",
    "India South Central",
    "Indonesia Central",
    "Israel Central",
    "Israel Northwest",
    "Italy North",
    "Japan East",
    "Japan West",
    "Jio India Central",
    "Jio India West",
    "Korea Central",
    "Korea South",
    "Malaysia South",
    "Malaysia West",
    "Mexico Central",
    "New Zealand North",
    "North Central US",
    "North Europe",
    "Northeast US 5",
    "Norway East",
    "Norway West",
    "Poland Central",
    "Qatar Central",
    "Saudi Arabia East",
    "Singapore Central",
    "Singapore North",
    "South Africa North",
    "South Africa West",
    "South Central US",
    "South Central US 2",
    "South India",
    "Southeast Asia",
    "Southeast Asia 3",
    "Southeast US",
    "Southeast US 3",
    "Southeast US 5",
    "Southwest US",
    "Spain Central",
    "Sweden Central",
    "Sweden South",
    "Switzerland North",
    "Switzerland West",
    "Taiwan North",
    "Taiwan Northwest",
    "UAE Central",
    "UAE North",
    "UK South",
    "UK West",
    "USDoD Central",
    "USDoD East",
    "USGov Arizona",
    "USGov Texas",
    "USGov Virginia",
    "USNat East",
    "USNat West",
    "USSec East",
    "USSec West",
    "USSec West Central",
    "West Central US",
    "West Central US FRE",
    "West Europe",
    "West India",
    "West US",
    "West US 2",
    "West US 3",
];

/// Takes a name as people write it, `eastus` too, and keeps it as the clients know it.
pub fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let found = String::deserialize(deserializer)?;
    let bare = bare(&found);
    if let Some(known) = REGIONS.iter().find(|name| self::bare(name) == bare) {
        return Ok((*known).to_owned());
    }
    let like = |name: &&&str| likeness(&self::bare(name), &bare);
    let nearest = REGIONS
        .iter()
        .max_by(|left, right| like(left).total_cmp(&like(right)))
        .copied()
        .unwrap_or_default();
    Err(D::Error::custom(format!(
        "'{found}' is no region that client libraries know; the nearest is '{nearest}'"
    )))
}

fn bare(name: &str) -> String {
    let letters = name.chars().filter(|letter| !letter.is_whitespace());
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer as _;
    use serde::de::value::{Error, StrDeserializer};

    use super::*;

    fn read(name: &str) -> Result<String, String> {
        let deserializer: StrDeserializer<'_, Error> = name.into_deserializer();
        known(deserializer).map_err(|error| error.to_string())
    }

    #[test]
    fn regions_are_known_however_they_are_spelt() {
        for (written, name) in [
            ("South Central US", "South Central US"),
            ("southcentralus", "South Central US"),
            ("west us 3", "West US 3"),
            (" UK South ", "UK South"),
        ] {
            assert_eq!(read(written).as_deref(), Ok(name));
        }
    }

    #[test]
    fn a_region_that_no_client_knows_is_refused_with_the_nearest() {
        for (written, nearest) in [("Wset Europe", "West Europe"), ("East US 4", "East US")] {
            let error = read(written).unwrap_err();
            assert!(error.contains(&format!("'{written}'")), "{error}");
            assert!(error.contains(nearest), "{error}");
        }
        assert!(read("Mars").is_err());
        assert!(read("").is_err());
    }
}
