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

/// Bytes that a page may have, so that it stays one that people read.
const PAGE_BYTES_MAX: usize = 15 * 1024;
/// The same for the entrance.
const README_BYTES_MAX: usize = 12 * 1024;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every page of the project, by its path.
fn documents() -> Vec<String> {
    let mut pages = files_below(root(), &|name| name.ends_with(".md"));
    pages.sort();
    let inside = |page: &PathBuf| {
        page.strip_prefix(root())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    pages.iter().map(inside).collect()
}

/// Files that are ours: not those that tools have installed or built.
fn files_below(folder: &Path, wanted: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            let foreign = ["target", "node_modules", "data", "dist"].contains(&&*name);
            if !foreign && !name.starts_with('.') {
                files.extend(files_below(&path, wanted));
            }
        } else if wanted(&name) {
            files.push(path);
        }
    }
    files
}

#[test]
fn every_page_is_short_enough_to_be_read() {
    let pages = documents();
    assert!(pages.len() > 10, "{pages:?}");
    for page in pages {
        let bound = match &*page {
            "README.md" => README_BYTES_MAX,
            _ => PAGE_BYTES_MAX,
        };
        let bytes = read(&page).len();
        assert!(
            bytes <= bound,
            "{page} has {bytes} bytes, more than {bound}"
        );
    }
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
fn every_setting_is_documented_and_in_the_config_file() {
    let table = rows(&section(&read("config/README.md"), "## Settings"));
    let config = read("config/bolide.toml");
    let defaults = serde_json::to_value(Settings::default()).unwrap();
    for name in setting_names() {
        let (part, key) = name.split_once('.').unwrap();
        let row = table.iter().find(|row| row[0] == name);
        let row =
            row.unwrap_or_else(|| panic!("config/README.md does not list the setting {name}"));
        let default = match &defaults[part][key] {
            Value::String(text) if text.is_empty() => "none".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        assert_eq!(row[1], default, "the default of {name} in config/README.md");
        let variable = format!("BOLIDE_{part}__{key}").to_uppercase();
        assert_eq!(
            row[2], variable,
            "the variable of {name} in config/README.md"
        );
        let listed = section_of_toml(&config, part).contains(&format!("# {key} = "));
        assert!(listed, "config/bolide.toml does not list {name}");
    }
    for row in table.iter().filter(|row| row[0].contains('.')) {
        let known = setting_names().contains(&row[0]);
        assert!(
            known,
            "config/README.md lists {}, which is no setting",
            row[0]
        );
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
fn every_metric_is_documented() {
    let page = read("dashboards/README.md");
    let node = NODE_THEMES.iter().flat_map(|(_, theme)| *theme).copied();
    assert_metrics(&section(&page, "## Metrics"), node);
    let driver = DRIVER_METRICS.iter().copied();
    assert_metrics(&section(&page, "## Metrics of the load driver"), driver);
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
fn every_charge_is_documented() {
    let told = rows(&section(&read("config/LIMITS.md"), "## Request units"));
    let model = rows(&read("src/model/charge.rs"));
    assert!(model.len() > 5, "no charges were found: {model:?}");
    for row in model.iter().filter(|row| row[0] != "operation") {
        assert!(
            told.contains(row),
            "config/LIMITS.md does not have the row {row:?}"
        );
    }
}

#[test]
fn every_function_is_documented() {
    let row = Regex::new(
        r#"(?:function|of_one!|of_two!|check!)\("([A-Z0-9_]+)"|\("([A-Z]+)", Aggregate"#,
    );
    let row = row.unwrap();
    let mut functions = BTreeSet::new();
    for file in source_files(&root().join("src/sql/functions")) {
        for found in row.captures_iter(&fs::read_to_string(&file).unwrap()) {
            functions.extend(
                found
                    .iter()
                    .skip(1)
                    .flatten()
                    .map(|name| name.as_str().to_owned()),
            );
        }
    }
    assert!(functions.len() > 100, "{functions:?}");
    let page = section(&read("src/sql/README.md"), "## Functions");
    let cells = page
        .lines()
        .filter(|line| line.starts_with("| "))
        .flat_map(|line| line.split('`'));
    let name = |text: &&str| {
        text.len() > 1
            && text
                .chars()
                .all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit())
    };
    let told: BTreeSet<String> = cells.filter(name).map(str::to_owned).collect();
    assert_eq!(told, functions, "src/sql/README.md and src/sql/functions");
}

/// Every kind of key that the engine has is in the table of the key layout, by its first byte.
#[test]
fn every_kind_of_key_is_documented() {
    let code = read("src/store/keys.rs");
    let kind = Regex::new(r#"const [A-Z_]+: (?:u8 = b'(.)'|&\[u8\] = b"(.)");"#).unwrap();
    let kinds: BTreeSet<String> = kind
        .captures_iter(&code)
        .map(|found| {
            found
                .iter()
                .skip(1)
                .flatten()
                .next()
                .unwrap()
                .as_str()
                .to_owned()
        })
        .collect();
    assert!(kinds.len() > 5, "{kinds:?}");
    let table = rows(&section(&read("src/store/README.md"), "## Key layout"));
    let told = table.iter().filter(|row| {
        row.len() == 4
            && row[0]
                .split_whitespace()
                .next()
                .is_some_and(|kind| kind.len() == 1)
    });
    let told: BTreeSet<String> = told
        .map(|row| row[0].split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(told, kinds, "src/store/README.md and src/store/keys.rs");
}

#[test]
fn every_link_leads_somewhere() {
    for document in documents() {
        let folder = Path::new(&document).parent().unwrap();
        for (_, target) in links(&read(&document)) {
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let file = match file {
                "" => PathBuf::from(&document),
                file => folder.join(file),
            };
            let exists = root().join(&file).exists();
            assert!(exists, "{document} links {target}, which does not exist");
            if !heading.is_empty() {
                let found = headings(&read(&file)).contains(heading);
                assert!(found, "{document} links {target}: there is no such heading");
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
    for document in documents() {
        let found = installs
            .find(&read(&document))
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
    let table = section(&read("tests/README.md"), "## Compatibility");
    let rows = rows(&table);
    assert!(rows.len() > 10);
    for row in rows.iter().skip(1) {
        assert_eq!(row.len(), 4, "{row:?}");
        let suites = ["python/", "js/", "rust-sdk/"];
        let mut backed = false;
        for (cell, suite) in row.iter().skip(1).zip(suites) {
            for (_, target) in links(cell) {
                assert!(
                    target.starts_with(suite),
                    "{target} in the column of {suite}"
                );
                backed |= root().join("tests").join(&target).is_file();
            }
        }
        assert!(backed, "no test backs '{}'", row[0]);
    }
}

#[test]
fn every_test_that_guards_an_invariant_exists() {
    let table = rows(&read("tests/INVARIANTS.md"));
    for (number, row) in table.iter().skip(1).enumerate() {
        assert_eq!(row[0], (number + 1).to_string(), "invariants are numbered");
        assert_guards("tests", &row[2]);
    }
    let short = rows(&section(&read("ARCHITECTURE.md"), "## Invariants"));
    for row in short.iter().skip(1) {
        assert_guards("", &row[1]);
    }
}

/// A cell of a page in `folder` links at least one test, and each exists.
fn assert_guards(folder: &str, cell: &str) {
    let guards = links(cell);
    assert!(!guards.is_empty(), "no test is linked: {cell}");
    for (test, file) in guards {
        let is_there = read(Path::new(folder).join(&file)).contains(&format!(" {test}("));
        assert!(is_there, "{file} has no test {test}");
    }
}

#[test]
fn every_fault_is_guarded_by_tests_that_exist() {
    let table = rows(&read("tests/FAULTS.md"));
    let faults: Vec<_> = table.iter().skip(1).collect();
    assert_eq!(faults.len(), 36);
    for (number, row) in faults.iter().enumerate() {
        assert_eq!(row[0], format!("F{}", number + 1), "faults are numbered");
        assert_guards("tests", &row[2]);
    }
}

#[test]
fn modules_use_only_what_the_architecture_allows() {
    let mut allowed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let table = section(&read("ARCHITECTURE.md"), "## Modules");
    for row in rows(&table).iter().skip(1) {
        let name = links(&row[0])
            .first()
            .expect("a link to the module")
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
        let module = inside.iter().next().unwrap().to_str().unwrap();
        let module = module.trim_end_matches(".rs");
        if ["main", "lib"].contains(&module) {
            continue;
        }
        let allowed = allowed.get(module);
        let allowed = allowed.unwrap_or_else(|| panic!("ARCHITECTURE.md has no module {module}"));
        for used in modules_used(&fs::read_to_string(&file).unwrap()) {
            let fine = used == module || allowed.contains(&used);
            assert!(fine, "{} uses {used}, {module} may not", inside.display());
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

/// The modules that a file names after `crate::`, alone or in braces. Its tests may use what they like.
fn modules_used(source: &str) -> BTreeSet<String> {
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
