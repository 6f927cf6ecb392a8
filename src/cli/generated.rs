//! Texts that are generated from the definition of the command line: shell completions, man pages.

use std::{fs, io, path::Path};

use clap_complete::Shell;

use super::definition;

/// The completion script for a shell.
pub(super) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut definition(), "bolide", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes `bolide.1` and a page for each command into a folder, which is made if it is missing.
/// The pages of two builds of one version are the same.
pub fn write_man_pages(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(definition().version(env!("CARGO_PKG_VERSION")), folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_completes_commands_and_flags() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completions(shell);
            for word in ["serve", "completions", "data-path", "health-port"] {
                assert!(script.contains(word), "{shell} does not complete {word}");
            }
        }
    }

    #[test]
    fn every_command_has_a_man_page() {
        let folder = tempfile::tempdir().unwrap();
        let pages = folder.path().join("made/man1");
        write_man_pages(&pages).unwrap();
        let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
        assert!(page("bolide.1").contains("Exit codes: 0 clean"));
        for command in definition().get_subcommands() {
            let page = page(&format!("bolide-{}.1", command.get_name()));
            assert!(page.starts_with(".ie"), "{page}");
        }
    }
}
