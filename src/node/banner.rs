//! What the person or the tool that started a node is told: how to reach it.

use std::fmt::{self, Write as _};

use tracing::warn;

use crate::{
    config::Settings,
    gateway::auth::keys::{KeyOrigin, KeySource, is_loopback},
};

/// Tools that start the emulator in a container wait for one of these lines.
const LISTENING: &str = "Now listening on: ";
const FULLY_READY: &str = "System is now fully ready to accept requests";

/// The banner as one text, so that one write shows it and no line of the log gets between.
pub fn text(
    endpoint: &str,
    health_port: u16,
    settings: &Settings,
    keys: Option<&KeySource>,
) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_text(&mut text, endpoint, health_port, settings, keys);
    text
}

fn write_text(
    text: &mut String,
    endpoint: &str,
    health_port: u16,
    settings: &Settings,
    keys: Option<&KeySource>,
) -> fmt::Result {
    let (version, host) = (env!("CARGO_PKG_VERSION"), &settings.server.host);
    writeln!(text, "Bolide {version} serves {endpoint}")?;
    writeln!(text, "  health     http://{host}:{health_port}/status")?;
    writeln!(
        text,
        "  data       {}",
        settings.storage.data_path.display()
    )?;
    match keys {
        Some(source) => {
            let keys = source.keys();
            match source.origin() {
                // It is printed because everybody knows it.
                _ if keys.primary.is_well_known() => {
                    writeln!(text, "  key        {}", keys.primary.base64())?;
                    writeln!(text, "  connection {}", keys.connection_string(endpoint))?;
                }
                KeyOrigin::File(path) => writeln!(text, "  key        from {}", path.display())?,
                KeyOrigin::WellKnown => {}
            }
        }
        None => writeln!(text, "  key        none: authentication is switched off")?,
    }
    if settings.server.emulator {
        writeln!(text, "{LISTENING}{endpoint}")?;
        writeln!(text, "{FULLY_READY}")?;
    }
    Ok(())
}

/// Logs what emulator mode opens, and what it was asked for in vain.
pub fn warn_of_emulator(settings: &Settings, keys: Option<&KeySource>) {
    let host = &settings.server.host;
    if !settings.server.emulator {
        return;
    }
    if keys.is_some_and(|keys| keys.keys().primary.is_well_known()) && !is_loopback(host) {
        warn!(
            host,
            "emulator mode: everybody who reaches this address knows the account's key; give a key \
             file of your own for anything but tests"
        );
    }
    let ignored = &settings.emulator_ignored;
    if !ignored.is_empty() {
        let ignored = ignored.join(", ");
        warn!(ignored, "variables of the emulator without a counterpart");
    }
}
