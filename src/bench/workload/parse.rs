//! A workload's text, checked: what is wrong is one line with the value and the nearest right key.

use figment::providers::{Format as _, Toml};

use super::{DefaultTtlChanges, Distribution, Workload, WorkloadOperation};
use crate::bench::item::ITEM_BYTES_MAX;
use crate::model::error::{Error, Result};
use crate::model::likeness::nearest;

/// Bounds of what a workload may ask for, so that a slip of the pen does no harm.
const ITEMS_MAX: u32 = 100_000_000;
const ITEM_BYTES_MIN: usize = 128;
const TTL_MAX: i64 = 2_147_483_647;
const SKEW_MAX: f64 = 5.0;
const SCAN_ITEMS_MAX: u32 = 100;
const READERS_MAX: u32 = 64;
const CONNECTIONS_MAX: u32 = 4_096;
const SECONDS_MAX: u32 = 24 * 3_600;
const RATE_MAX: u32 = 10_000_000;
const VALUES_MAX: usize = 100;

/// Reads the text of a workload; `source` is how it is called in messages.
pub fn parse(source: &str, text: &str) -> Result<Workload> {
    let workload: Workload = Toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .and_then(|span| text.get(..span.start))
            .map_or(1, |before| {
                before.bytes().filter(|byte| *byte == b'\n').count() + 1
            });
        Error::bad_request(format!(
            "{source}, line {line}: {}",
            explained(error.message())
        ))
    })?;
    check(&workload).map_err(|problem| Error::bad_request(format!("{source}: {problem}")))?;
    Ok(workload)
}

/// A message of the deserializer in our words. It puts names in backquotes: the wrong one first,
/// then those that are right.
fn explained(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let kind = match message {
        _ if message.starts_with("unknown field") => "key",
        _ if message.starts_with("unknown variant") => "value",
        _ => return in_plain_words(&message.replace('\n', ", ")),
    };
    let wrong = names.next().unwrap_or_default();
    let right: Vec<&str> = names.collect();
    let hint = match nearest(wrong, right.iter().copied()) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("there are {}", right.join(", ")),
    };
    format!("there is no {kind} '{wrong}'; {hint}")
}

/// The deserializer names its own types as what it expects.
fn in_plain_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let expected = match expected.trim() {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or above,",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        other => return format!("{found}; expected is {other}"),
    };
    format!("{found}; {expected} is expected")
}

fn check(workload: &Workload) -> Result<(), String> {
    let items = &workload.items;
    within("items.count", items.count, 1, ITEMS_MAX)?;
    within("items.bytes", items.bytes, ITEM_BYTES_MIN, ITEM_BYTES_MAX)?;
    ttl("items.ttl", items.ttl.map(i64::from))?;
    ttl("container.default_ttl", workload.container.default_ttl)?;
    if let Some(seconds) = items.due_together_seconds {
        within("items.due_together_seconds", seconds, 1, SECONDS_MAX)?;
    }
    if let Some(one_in) = items.stay_one_in {
        within("items.stay_one_in", one_in, 2, ITEMS_MAX)?;
    }
    let expires = items.ttl.is_some() || items.due_together_seconds.is_some();
    if expires && workload.container.default_ttl.is_none() {
        return Err(
            "items.ttl and items.due_together_seconds need container.default_ttl (-1 switches \
             time to live on)"
                .to_owned(),
        );
    }
    check_operations(workload)?;
    let keys = &workload.keys;
    if !(keys.skew > 0.0 && keys.skew <= SKEW_MAX) {
        return Err(format!(
            "keys.skew is {}; above 0 and up to {SKEW_MAX} is expected",
            keys.skew
        ));
    }
    within("keys.recent_seconds", keys.recent_seconds, 1, SECONDS_MAX)?;
    within(
        "keys.scan_items_max",
        keys.scan_items_max,
        1,
        SCAN_ITEMS_MAX,
    )?;
    if let Some(changes) = &workload.default_ttl_changes {
        check_changes(changes, workload.container.default_ttl)?;
    }
    within(
        "change_feed.readers",
        workload.change_feed.readers,
        0,
        READERS_MAX,
    )?;
    let run = &workload.run;
    within("run.connections", run.connections, 1, CONNECTIONS_MAX)?;
    within("run.seconds", run.seconds, 1, SECONDS_MAX)?;
    within("run.warm_up_seconds", run.warm_up_seconds, 0, SECONDS_MAX)?;
    within("run.rate", run.rate.unwrap_or(1), 1, RATE_MAX)
}

fn check_operations(workload: &Workload) -> Result<(), String> {
    let shares = &workload.operations;
    if shares.values().all(|share| *share == 0) {
        let names = WorkloadOperation::ALL
            .map(WorkloadOperation::name)
            .join(", ");
        return Err(format!(
            "operations has no share above 0; there are {names}"
        ));
    }
    let inserts = shares
        .get(&WorkloadOperation::Insert)
        .is_some_and(|share| *share > 0);
    if workload.keys.distribution == Distribution::Recent && !inserts {
        return Err("keys.distribution is recent, but operations.insert is 0".to_owned());
    }
    Ok(())
}

fn check_changes(changes: &DefaultTtlChanges, default_ttl: Option<i64>) -> Result<(), String> {
    let name = "default_ttl_changes";
    within(
        &format!("{name}.every_seconds"),
        changes.every_seconds,
        1,
        SECONDS_MAX,
    )?;
    within(
        &format!("{name}.values, their number,"),
        changes.values.len(),
        1,
        VALUES_MAX,
    )?;
    for value in &changes.values {
        ttl(&format!("{name}.values"), Some(*value))?;
    }
    match default_ttl {
        None => Err(format!("{name} needs container.default_ttl")),
        Some(_) => Ok(()),
    }
}

fn within<N: PartialOrd + std::fmt::Display>(
    name: &str,
    value: N,
    low: N,
    high: N,
) -> Result<(), String> {
    if value < low || value > high {
        return Err(format!("{name} is {value}; {low} to {high} is expected"));
    }
    Ok(())
}

fn ttl(name: &str, value: Option<i64>) -> Result<(), String> {
    match value {
        None | Some(-1 | 1..=TTL_MAX) => Ok(()),
        Some(value) => Err(format!(
            "{name} is {value}; -1 or 1 to {TTL_MAX} is expected"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLEST: &str = "about = 'x'\n[operations]\nread = 1\n";

    #[test]
    fn what_is_wrong_is_one_line_with_the_value_and_the_nearest_right_key() {
        let table: [(&str, &[&str]); 18] = [
            (
                "[itms]\ncount = 1\n",
                &["line 4", "'itms'", "did you mean items?"],
            ),
            (
                "[items]\ncuont = 1\n",
                &["line 5", "'cuont'", "did you mean count?"],
            ),
            ("[items]\nxyz = 1\n", &["'xyz'", "there are count, bytes"]),
            (
                "[items]\ncount = 'many'\n",
                &["line 5", "many", "a whole number, 0 or above, is expected"],
            ),
            ("[items]\ncount = -5\n", &["-5", "a whole number"]),
            ("[keys]\nskew = 'x'\n", &["line 5", "a number is expected"]),
            ("[items]\ncount = 0\n", &["items.count is 0"]),
            ("[items]\nbytes = 10\n", &["items.bytes is 10"]),
            ("[items]\nttl = 0\n", &["items.ttl is 0"]),
            (
                "[items]\nttl = 5\n",
                &["items.ttl", "container.default_ttl"],
            ),
            (
                "[container]\ndefault_ttl = -2\n",
                &["container.default_ttl is -2"],
            ),
            (
                "[keys]\ndistribution = 'zipfain'\n",
                &["line 5", "'zipfain'", "did you mean zipfian?"],
            ),
            ("[keys]\ndistribution = 'recent'\n", &["operations.insert"]),
            ("[keys]\nskew = 0\n", &["keys.skew is 0"]),
            ("[run]\nrate = 0\n", &["run.rate is 0"]),
            (
                "[default_ttl_changes]\nevery_seconds = 1\nvalues = [0]\n",
                &["default_ttl_changes.values is 0"],
            ),
            (
                "[default_ttl_changes]\nevery_seconds = 1\nvalues = [5]\n",
                &["container.default_ttl"],
            ),
            ("[keys\n", &["line 4"]),
        ];
        for (text, fragments) in table {
            let text = format!("{SMALLEST}{text}");
            let error = parse("workload 'w'", &text).expect_err(&text).message;
            assert!(error.starts_with("workload 'w'"), "{error}");
            assert!(!error.contains('\n'), "{error}");
            for fragment in fragments {
                assert!(error.contains(fragment), "{text}: no {fragment} in {error}");
            }
        }
        for (text, fragment) in [
            (
                "about = 'x'\n[operations]\nraed = 1\n",
                "did you mean read?",
            ),
            (
                "about = 'x'\n[operations]\nread = 0\n",
                "there are read, update",
            ),
            ("[operations]\nread = 1\n", "about"),
        ] {
            let error = parse("w", text).expect_err(text).message;
            assert!(error.contains(fragment), "{error}");
        }
    }

    #[test]
    fn what_a_file_leaves_out_has_a_default() {
        let workload = parse("w", SMALLEST).unwrap();
        assert_eq!(workload.items.bytes, 1_024);
        assert_eq!(workload.run.connections, 64);
        assert_eq!(workload.container.default_ttl, None);
    }
}
