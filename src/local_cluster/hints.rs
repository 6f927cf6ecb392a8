//! The commands that messages name, as they have to be typed.

use std::path::Path;

use super::DATA_PATH;

/// Returns a command for the cluster in a folder: `bolide cluster down --data-path x`.
pub fn command(name: &str, folder: &Path) -> String {
    let same = |one: &Path, other: &Path| match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    };
    if same(folder, Path::new(DATA_PATH)) {
        return format!("bolide cluster {name}");
    }
    let folder = folder.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@%:,=".contains(c);
    match folder.chars().all(is_plain) {
        true => format!("bolide cluster {name} --data-path {folder}"),
        false => format!(
            "bolide cluster {name} --data-path '{}'",
            folder.replace('\'', "'\\''")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_its_own_is_part_of_the_command() {
        let shown = |folder: &str| command("status", Path::new(folder));
        assert_eq!(shown(DATA_PATH), "bolide cluster status");
        assert_eq!(shown("/x/y"), "bolide cluster status --data-path /x/y");
        let quoted = "bolide cluster status --data-path '/x y/it'\\''s'";
        assert_eq!(shown("/x y/it's"), quoted);
    }
}
