//! How the process ends.

/// The exit code of the process; the numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    Clean = 0,
    /// Anything that has no number of its own.
    Failure = 1,
    /// The command line, a setting, a key file or a certificate is wrong; or a port is taken.
    Configuration = 2,
    /// Another process uses the data folder.
    DataInUse = 3,
    /// The data folder is damaged.
    DataDamaged = 4,
    /// The disk is full.
    DiskFull = 10,
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}
