//! Keeps the documents true: what they list is all there is, and what they name exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use bolide::config::{Settings, setting_names};
use bolide::telemetry::{
    self,
    containers::CONTAINER_LABELS_MAX,
    metric::{Kind, Metric, Values},
    table::{DRIVER_METRICS, NODE_THEMES},
};
use regex::Regex;
use serde_json::Value;

const DOCUMENTS: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The part of a document under a heading, up to the next one of the same or a higher level.
fn section(document: &str, heading: &str) -> String {
    let level = heading.chars().take_while(|c| *c == '#').count();
    let mut lines = document.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "there is no heading '{heading}'");
    let ends = |line: &str| {
        let marks = line.chars().take_while(|c| *c == '#').count();
        (1..=level).contains(&marks) && line.chars().nth(marks) == Some(' ')
    };
    let body: Vec<&str> = lines.take_while(|line| !ends(line)).collect();
    body.join("\n")
}

/// The cells of every table row; rules and code marks are left out.
fn rows(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().map(|line| line.trim_start_matches("//! "));
    lines
        .filter_map(|line| line.strip_prefix('|')?.trim_end().strip_suffix('|'))
        .map(|line| {
            line.split('|')
                .map(|cell| cell.trim().replace('`', ""))
                .collect::<Vec<_>>()
        })
        .filter(|cells| !cells.iter().all(|cell| cell.starts_with("---")))
        .collect()
}

/// Text and target of every link.
fn links(document: &str) -> Vec<(String, String)> {
    let link = Regex::new(r"\[([^\]]+)\]\(([^)\s]+)\)").unwrap();
    link.captures_iter(document)
        .map(|found| (found[1].to_owned(), found[2].to_owned()))
        .collect()
}

#[test]
fn every_setting_is_in_the_readme_and_in_the_config_file() {
    let table = rows(&section(&read("README.md"), "## Settings"));
    let config = read("config/bolide.toml");
    let defaults = serde_json::to_value(Settings::default()).unwrap();
    for name in setting_names() {
        let (part, key) = name.split_once('.').unwrap();
        let row = table.iter().find(|row| row[0] == name);
        let row = row.unwrap_or_else(|| panic!("README.md does not list the setting {name}"));
        let default = match &defaults[part][key] {
            Value::String(text) if text.is_empty() => "none".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        assert_eq!(row[1], default, "the default of {name} in README.md");
        let variable = format!("BOLIDE_{part}__{key}").to_uppercase();
        assert_eq!(row[2], variable, "the variable of {name} in README.md");
        let listed = section_of_toml(&config, part).contains(&format!("# {key} = "));
        assert!(listed, "config/bolide.toml does not list {name}");
    }
    for row in table.iter().filter(|row| row[0].contains('.')) {
        let known = setting_names().contains(&row[0]);
        assert!(known, "README.md lists {}, which is no setting", row[0]);
    }
}

fn section_of_toml(file: &str, name: &str) -> String {
    let lines = file.lines().skip_while(|line| *line != format!("[{name}]"));
    let lines: Vec<&str> = lines
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .collect();
    lines.join("\n")
}

#[test]
fn every_metric_is_in_the_readme() {
    let readme = read("README.md");
    let node = NODE_THEMES.iter().flat_map(|(_, theme)| *theme).copied();
    assert_metrics(&section(&readme, "### Metrics"), node);
    let driver = DRIVER_METRICS.iter().copied();
    assert_metrics(&section(&readme, "### Metrics of the load driver"), driver);
}

/// A section has exactly these metrics, and the values of their labels.
fn assert_metrics(section: &str, metrics: impl Iterator<Item = &'static Metric>) {
    let (mut wanted, mut labels) = (BTreeSet::new(), BTreeMap::new());
    for metric in metrics {
        let names: Vec<&str> = metric.labels.iter().map(|label| label.name).collect();
        let names = match names.as_slice() {
            [] => "–".to_owned(),
            names => names.join(", "),
        };
        let (name, kind) = (metric.name.to_owned(), metric.kind.text().to_owned());
        let (unit, help) = (metric.unit.to_owned(), metric.help.to_owned());
        wanted.insert(vec![name, kind, unit, names, help]);
        labels.extend(metric.labels.iter().map(|label| (label.name, label.values)));
    }
    let rows = rows(section);
    let of_metrics = rows
        .iter()
        .filter(|row| row.len() == 5 && row[0] != "metric");
    assert_eq!(of_metrics.cloned().collect::<BTreeSet<_>>(), wanted);
    let of_labels = rows
        .iter()
        .filter(|row| row.len() == 2 && row[0] != "label");
    let told: BTreeMap<&str, &str> = of_labels.map(|row| (&*row[0], &*row[1])).collect();
    assert!(told.keys().eq(labels.keys()), "{told:?}");
    for (name, values) in labels {
        match values {
            Values::Listed(values) => assert_eq!(told[name], values.join(", ")),
            Values::Containers => {
                let bound = format!("first {CONTAINER_LABELS_MAX} containers");
                assert!(told[name].contains(&bound), "{bound}: {}", told[name]);
            }
            Values::Version => {}
        }
    }
}

/// Names as Prometheus wants them: base units, and what goes up for ever is called a total.
#[test]
fn every_metric_is_named_by_the_rules() {
    let mut names = BTreeSet::new();
    for metric in telemetry::table::all() {
        let name = metric.name;
        assert!(names.insert(name), "{name} is there twice");
        let prefix = name.starts_with("bolide_") || name.starts_with("process_");
        assert!(prefix, "{name}");
        let unit = ["seconds", "bytes"].contains(&metric.unit);
        assert!(!unit || name.contains(metric.unit), "the unit of {name}");
        if name != "process_cpu_seconds_total" {
            let counts = metric.kind == Kind::Counter;
            assert_eq!(counts, name.ends_with("_total"), "{name}");
        }
        if let Kind::Histogram(buckets) = metric.kind {
            assert!(buckets.is_sorted() && !buckets.is_empty(), "{name}");
        }
    }
}

#[test]
fn every_charge_is_in_the_readme() {
    let told = rows(&section(&read("README.md"), "## Request units"));
    let model = rows(&read("src/model/charge.rs"));
    assert!(model.len() > 5, "no charges were found: {model:?}");
    for row in model.iter().filter(|row| row[0] != "operation") {
        assert!(
            told.contains(row),
            "README.md does not have the row {row:?}"
        );
    }
}

#[test]
fn every_link_leads_somewhere() {
    for document in DOCUMENTS {
        let text = read(document);
        for (_, target) in links(&text) {
            if target.contains("://") {
                continue;
            }
            let (file, place) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { document } else { file };
            let exists = root().join(file).exists();
            assert!(exists, "{document} links {file}, which does not exist");
            if !place.is_empty() {
                let found = headings(&read(file)).contains(place);
                assert!(
                    found,
                    "{document} links #{place}, which {file} does not have"
                );
            }
        }
    }
}

/// Bolide is in no public registry: whoever has that name there is somebody else.
#[test]
fn no_page_installs_bolide_from_a_registry() {
    let installs = [
        r"pipx? install(?: -\S+)* bolide\b",
        r"\b(?:uvx|npx)(?: -\S+)* bolide\b",
        r"npm (?:install|i|exec)(?: -\S+)* bolide\b",
        r"cargo install(?: --locked)? bolide\b",
        r"apt(?:-get)? install(?: -\S+)* bolide\b",
    ];
    let installs = Regex::new(&installs.join("|")).unwrap();
    assert!(installs.is_match("pip install -U bolide"));
    for document in DOCUMENTS.iter().chain(&["config/packaging/package.md"]) {
        let found = installs
            .find(&read(document))
            .map(|found| found.as_str().to_owned());
        assert_eq!(
            found, None,
            "{document} installs a package of somebody else"
        );
    }
}

/// Headings as links spell them.
fn headings(document: &str) -> BTreeSet<String> {
    let lines = document.lines().filter(|line| line.starts_with('#'));
    lines
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            let kept = words
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn every_row_of_the_compatibility_table_is_backed_by_tests() {
    let table = section(&read("README.md"), "## Compatibility");
    let rows = rows(&table);
    assert!(rows.len() > 10);
    for row in rows.iter().skip(1) {
        assert_eq!(row.len(), 4, "{row:?}");
        let suites = ["tests/python/", "tests/js/", "tests/rust-sdk/"];
        let mut backed = false;
        for (cell, suite) in row.iter().skip(1).zip(suites) {
            for (_, target) in links(cell) {
                assert!(
                    target.starts_with(suite),
                    "{target} in the column of {suite}"
                );
                backed |= root().join(&target).is_file();
            }
        }
        assert!(backed, "no test backs '{}'", row[0]);
    }
}

#[test]
fn every_test_that_guards_an_invariant_exists() {
    let invariants = section(&read("ARCHITECTURE.md"), "## Invariants");
    for (number, row) in rows(&invariants).iter().skip(1).enumerate() {
        assert_eq!(row[0], (number + 1).to_string(), "invariants are numbered");
        let guards = links(&row[2]);
        assert!(!guards.is_empty(), "nothing guards invariant {}", row[0]);
        for (test, file) in guards {
            let is_there = read(&file).contains(&format!(" {test}("));
            assert!(is_there, "{file} has no test {test}");
        }
    }
}

#[test]
fn every_fault_is_guarded_by_tests_that_exist() {
    let table = rows(&read("tests/FAULTS.md"));
    let faults: Vec<_> = table.iter().skip(1).collect();
    assert_eq!(faults.len(), 36);
    for (number, row) in faults.iter().enumerate() {
        assert_eq!(row[0], format!("F{}", number + 1), "faults are numbered");
        let guards = links(&row[2]);
        assert!(!guards.is_empty(), "nothing guards against {}", row[0]);
        for (test, file) in guards {
            let is_there = read(Path::new("tests").join(&file)).contains(&format!(" {test}("));
            assert!(is_there, "{}: {file} has no test {test}", row[0]);
        }
    }
}

#[test]
fn rooms_use_only_what_the_architecture_allows() {
    let mut allowed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let table = section(&read("ARCHITECTURE.md"), "## Rooms");
    for row in rows(&table).iter().skip(1) {
        let name = links(&row[0])
            .first()
            .expect("a link to the room")
            .0
            .clone();
        let uses = match row[2].as_str() {
            "nothing of ours" => BTreeSet::new(),
            "all" => allowed.keys().cloned().collect(),
            list => list.split(", ").map(str::to_owned).collect(),
        };
        for used in &uses {
            assert!(
                allowed.contains_key(used),
                "{name} points back up to {used}"
            );
        }
        allowed.insert(name, uses);
    }
    for file in source_files(&root().join("src")) {
        let inside = file.strip_prefix(root().join("src")).unwrap();
        let room = inside.iter().next().unwrap().to_str().unwrap();
        let room = room.trim_end_matches(".rs");
        if ["main", "lib"].contains(&room) {
            continue;
        }
        let allowed = allowed.get(room);
        let allowed = allowed.unwrap_or_else(|| panic!("ARCHITECTURE.md has no room {room}"));
        for used in rooms_used(&fs::read_to_string(&file).unwrap()) {
            let fine = used == room || allowed.contains(&used);
            assert!(fine, "{} uses {used}, {room} may not", inside.display());
        }
    }
}

fn source_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            files.extend(source_files(&path));
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            files.push(path);
        }
    }
    files
}

/// The rooms that a file names after `crate::`, alone or in braces. Its tests may use what they like.
fn rooms_used(source: &str) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code: String = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let word = |text: &str| -> String {
        let text = text.trim_start();
        text.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let mut used = BTreeSet::new();
    for after in code.split("crate::").skip(1) {
        let Some(list) = after.strip_prefix('{') else {
            used.insert(word(after));
            continue;
        };
        let (mut depth, mut item) = (1, String::new());
        for c in list.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => {
                    used.insert(word(&std::mem::take(&mut item)));
                }
                _ if depth == 1 => item.push(c),
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        used.insert(word(&item));
    }
    used.remove("");
    used
}
