//! Examples for the help of every command. A test walks the commands: none goes without, and each
//! example is a command line that is understood.

use std::mem;

use clap::Command;

/// A command by its words, and what to show: a command line, or several.
type Example = (&'static str, &'static [&'static str]);

const EXAMPLES: [Example; 27] = [
    (
        "bolide",
        &[
            "bolide",
            "bolide --port 9081 --data-path /var/lib/bolide",
            "bolide --protocol https --set server.region='West Europe'",
        ],
    ),
    (
        "bolide serve",
        &[
            "bolide serve --host 0.0.0.0 --key-file account.key --protocol https",
            "bolide serve --config config/bolide.toml --log-level info,bolide::shard=debug",
            "bolide serve --emulator --host 0.0.0.0",
        ],
    ),
    ("bolide key", &["bolide key > account.key"]),
    (
        "bolide completions",
        &["bolide completions bash > ~/.local/share/bash-completion/completions/bolide"],
    ),
    ("bolide man", &["bolide man ~/.local/share/man/man1"]),
    (
        "bolide ready",
        &[
            "bolide ready",
            "bolide ready --health-endpoint http://10.0.0.1:8080 --strict",
        ],
    ),
    ("bolide clock", &["bolide clock confirm"]),
    (
        "bolide clock confirm",
        &["bolide clock confirm --health-port 8080 --key-file account.key"],
    ),
    (
        "bolide split",
        &["bolide split dbs/shop/colls/carts --range 0"],
    ),
    ("bolide check", &["bolide check --data-path ./data"]),
    (
        "bolide removed",
        &["bolide removed list", "bolide removed delete --all"],
    ),
    (
        "bolide removed list",
        &["bolide removed list --data-path ./data"],
    ),
    (
        "bolide removed delete",
        &["bolide removed delete --all --data-path ./data"],
    ),
    (
        "bolide cluster",
        &[
            "bolide cluster up --nodes 3",
            "bolide cluster status",
            "bolide cluster down",
        ],
    ),
    (
        "bolide cluster up",
        &["bolide cluster up --nodes 3 --port 9081 --data-path ./data/cluster"],
    ),
    (
        "bolide cluster down",
        &["bolide cluster down --data-path ./data/cluster"],
    ),
    (
        "bolide cluster status",
        &["bolide cluster status --data-path ./data/cluster"],
    ),
    (
        "bolide cluster check",
        &["bolide cluster check --key-file account.key"],
    ),
    (
        "bolide cluster drain",
        &[
            "bolide cluster drain 3",
            "bolide cluster drain 3 --health-port 8080 --key-file account.key",
        ],
    ),
    (
        "bolide bench",
        &[
            "bolide bench list",
            "bolide bench run sessions --seconds 30 --html report.html",
        ],
    ),
    (
        "bolide bench run",
        &[
            "bolide bench run ycsb-b --connections 32 --seconds 30",
            "bolide bench run mine.toml --endpoint https://db.example.org:8081/ --key-file account.key --ca-file ca.pem",
        ],
    ),
    ("bolide bench list", &["bolide bench list"]),
    (
        "bolide bench compare",
        &["bolide bench compare --peer redis --json figures.json"],
    ),
    (
        "bolide bench node",
        &["bolide bench node --only create --items 5000"],
    ),
    (
        "bolide bench cluster",
        &["bolide bench cluster --json figures.json"],
    ),
    (
        "bolide bench driver",
        &["bolide bench driver --connections 64 --seconds 4"],
    ),
    (
        "bolide bench yardstick",
        &["bolide bench yardstick --port 9081"],
    ),
];

/// Puts the examples at the end of the help of a command and of all below it.
pub fn with_examples(command: Command) -> Command {
    let words = command.get_name().to_owned();
    shown(command, &words)
}

fn shown(mut command: Command, words: &str) -> Command {
    for below in command.get_subcommands_mut() {
        let words = format!("{words} {}", below.get_name());
        *below = shown(mem::take(below), &words);
    }
    let Some((_, lines)) = EXAMPLES.iter().find(|(known, _)| *known == words) else {
        return command;
    };
    let title = match lines.len() {
        1 => "Example:",
        _ => "Examples:",
    };
    let mut text = title.to_owned();
    for line in *lines {
        text.push_str("\n  ");
        text.push_str(line);
    }
    if let Some(own) = command.get_after_help() {
        text = format!("{text}\n\n{own}");
    }
    command.after_help(text)
}

#[cfg(test)]
mod tests {

    use super::super::definition;
    use super::*;

    /// The words of a command line as a shell has them, up to where its output goes.
    fn arguments(line: &str) -> Vec<String> {
        let command = line.split(" > ").next().unwrap();
        let (mut words, mut quoted) = (vec![String::new()], false);
        for c in command.chars() {
            match c {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                c => words.last_mut().unwrap().push(c),
            }
        }
        words
    }

    fn walk(command: &Command, words: &str, visited: &mut Vec<String>) {
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        assert!(help.contains("Example"), "{words} has no example");
        let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
        let lines: Vec<&str> = lines
            .take_while(|line| line.starts_with("bolide"))
            .collect();
        assert!(!lines.is_empty(), "{words}");
        for line in lines {
            assert!(line.starts_with(words), "{line} is no example of {words}");
            let whole = definition();
            let parsed = whole.try_get_matches_from(arguments(line));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
        visited.push(words.to_owned());
        for below in command.get_subcommands() {
            walk(below, &format!("{words} {}", below.get_name()), visited);
        }
    }

    #[test]
    fn every_command_has_examples_that_are_understood() {
        let mut visited = Vec::new();
        walk(&definition(), "bolide", &mut visited);
        let known: Vec<&str> = EXAMPLES.iter().map(|(words, _)| *words).collect();
        for words in &known {
            let exists = visited.iter().any(|visited| visited == words);
            assert!(exists, "there is no command '{words}'");
        }
        assert_eq!(visited.len(), known.len());
    }
}
