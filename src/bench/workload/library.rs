//! The workloads that come along, and those of the user.

use std::path::Path;

use super::Workload;
use super::parse::parse;
use crate::model::error::{Error, Result};
use crate::model::likeness::nearest;

/// Name and text of each; the files are built in, so that the command works from anywhere.
macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../config/workloads/", $name, ".toml")))),*]
    };
}

const BUILT_IN: [(&str, &str); 11] = built_in![
    "ycsb-a",
    "ycsb-b",
    "ycsb-c",
    "ycsb-d",
    "ycsb-e",
    "ycsb-f",
    "sessions",
    "mass-expiry",
    "churn",
    "ttl-change",
    "expiry-feed",
];

/// A line for each workload that comes along.
pub fn list() -> Result<String> {
    let width = BUILT_IN.iter().map(|(name, _)| name.len()).max();
    let width = width.unwrap_or_default();
    let lines = BUILT_IN.iter().map(|(name, text)| {
        let workload = parse(&format!("workload '{name}'"), text)?;
        Ok(format!("{name:<width$}  {}\n", workload.about))
    });
    lines.collect()
}

/// The workload with this name, or in this file. A name is what has neither a folder nor an
/// ending.
pub fn find(name: &str) -> Result<(String, Workload)> {
    let path = Path::new(name);
    let is_file = name.contains('/') || path.extension().is_some();
    if is_file {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::bad_request(format!("cannot read the workload file '{name}': {error}"))
        })?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let workload = parse(&format!("workload file '{name}'"), &text)?;
        return Ok((stem.into_owned(), workload));
    }
    match BUILT_IN.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => Ok((name.to_owned(), parse(&format!("workload '{name}'"), text)?)),
        None => {
            let hint = match nearest(name, BUILT_IN.iter().map(|(known, _)| *known)) {
                Some(nearest) => format!("did you mean {nearest}?"),
                None => "bolide bench list shows them".to_owned(),
            };
            Err(Error::bad_request(format!(
                "there is no workload '{name}'; {hint}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_that_comes_along_is_right_and_every_file_comes_along() {
        for (name, _) in BUILT_IN {
            assert_eq!(find(name).expect(name).0, name);
        }
        assert_eq!(list().unwrap().lines().count(), BUILT_IN.len());
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/config/workloads");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let found = BUILT_IN.iter().find(|(known, _)| *known == name);
            let (_, text) = found.unwrap_or_else(|| panic!("{name} is not built in"));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), *text);
        }
    }

    #[test]
    fn what_is_not_there_is_named_with_what_was_meant() {
        let error = find("ycsb-z").unwrap_err().message;
        assert!(
            error.contains("'ycsb-z'") && error.contains("did you mean ycsb-"),
            "{error}"
        );
        let error = find("sesions").unwrap_err().message;
        assert!(error.contains("did you mean sessions?"), "{error}");
        let error = find("/no/such.toml").unwrap_err().message;
        assert!(error.contains("/no/such.toml"), "{error}");
    }

    #[test]
    fn the_example_of_the_readme_is_a_workload() {
        let readme = include_str!("../README.md");
        let mut blocks = readme.split("```toml\n").skip(1);
        let block = blocks.find(|block| block.contains("[operations]"));
        let text = block.and_then(|block| block.split("```").next()).unwrap();
        let workload = parse("src/bench/README.md", text).unwrap();
        assert_eq!(
            workload.operations.len(),
            super::super::WorkloadOperation::ALL.len()
        );
    }
}
