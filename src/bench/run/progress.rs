//! The line that a person sees while a run goes on.

/// Characters of a bar, at most and at least; below that there is none.
const BAR_MAX: usize = 30;
const BAR_MIN: usize = 5;
/// Where the terminal does not tell its width.
const COLUMNS: usize = 80;

/// Columns of the terminal.
pub fn columns() -> usize {
    #[cfg(target_os = "linux")]
    if let Ok(size) = rustix::termios::tcgetwinsize(std::io::stderr())
        && size.ws_col > 0
    {
        return usize::from(size.ws_col);
    }
    COLUMNS
}

/// A bar that is full to this share, and what is told beside it: never more than a line, as what
/// wraps cannot be written over.
pub fn line(share: f64, told: &str, columns: usize) -> String {
    let room = columns.saturating_sub(told.chars().count() + "[]  ".len());
    let length = room.min(BAR_MAX);
    let line = if length < BAR_MIN {
        told.to_owned()
    } else {
        let full = (share.clamp(0.0, 1.0) * length as f64).round() as usize;
        format!("[{}{}] {told}", "#".repeat(full), "-".repeat(length - full))
    };
    line.chars().take(columns.saturating_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_never_wraps_and_its_bar_shows_how_far_it_is() {
        assert_eq!(line(0.5, "told", 18), "[#####-----] told");
        assert_eq!(line(2.0, "told", 200).matches('#').count(), BAR_MAX);
        assert_eq!(line(0.0, "told", 12), "told");
        for columns in 0..60 {
            let shown = line(0.3, "5/30 s  1,234 /s  p99 0.5 ms", columns);
            assert!(shown.chars().count() < columns.max(1), "{columns}: {shown}");
        }
    }
}
