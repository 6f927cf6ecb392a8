//! Standard output and standard error, whose reader may be gone: `bolide cluster status | head -1`.
//!
//! The macros replace the standard ones in this crate, which panic when a pipe is closed. What
//! cannot be shown is dropped, and the work goes on.

macro_rules! print {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = std::write!(std::io::stdout(), $($text)*);
    }};
}

macro_rules! println {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = std::writeln!(std::io::stdout(), $($text)*);
    }};
}

macro_rules! eprint {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = std::write!(std::io::stderr(), $($text)*);
    }};
}

macro_rules! eprintln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = std::writeln!(std::io::stderr(), $($text)*);
    }};
}

/// Writes a text to standard output.
pub fn show(text: &str) {
    print!("{text}");
}

/// Writes a text to standard error.
pub fn warn(text: &str) {
    eprint!("{text}");
}
