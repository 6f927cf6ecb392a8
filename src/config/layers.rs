//! Settings in layers: defaults < file < environment (`BOLIDE_SECTION__KEY`) < flags. A key that
//! does not exist is an error that names where it stood and the nearest right one. In emulator mode
//! the emulator's variables lie between the file and our own.

use std::path::{Path, PathBuf};

use figment::error::{Actual, Kind};
use figment::providers::{Format as _, Serialized, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::{Settings, emulator, together};
use crate::model::error::{Error, Result};
use crate::model::likeness::{LIKENESS_MIN, likeness};

/// What the names of our environment variables begin with.
const ENVIRONMENT_PREFIX: &str = "BOLIDE_";
/// What stands between section and key in the name of an environment variable.
const ENVIRONMENT_SEPARATOR: &str = "__";

/// One flag as it was given: how to call it in a message, which setting it is, its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    pub shown: String,
    pub setting: String,
    pub value: String,
}

/// The layers over the defaults, lowest first.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    /// All variables; those that are not ours are passed over.
    pub environment: Vec<(String, String)>,
    pub flags: Vec<Flag>,
    /// Flags of the emulator that are none of ours, with their values.
    pub emulator_flags: Vec<(&'static str, String)>,
}

/// Lays the sources over the defaults and checks the result.
pub fn load(sources: Sources) -> Result<Settings> {
    let file = sources.file.as_deref().map(file_layer).transpose()?;
    let environment = environment_layer(&sources.environment)?;
    let flags = given_layer("flag", &sources.flags)?;
    let is_emulator = [Some(&flags), Some(&environment), file.as_ref()]
        .into_iter()
        .flatten()
        .find_map(Layer::is_emulator)
        .unwrap_or(false);
    let mut layers: Vec<Layer> = file.into_iter().collect();
    let mut translated = Vec::new();
    if is_emulator {
        let variables = emulator::variables(&sources.environment)?;
        layers.push(given_layer("environment variable", &variables.settings)?);
        layers.push(environment);
        let own = emulator::flags(&sources.emulator_flags)?;
        let named = sources.flags.into_iter().map(emulator::in_our_words);
        let flags: Vec<Flag> = own.settings.iter().cloned().chain(named).collect();
        layers.push(given_layer("flag", &flags)?);
        translated.extend([variables, own]);
    } else {
        emulator::refuse_flags(&sources.emulator_flags)?;
        layers.extend([environment, flags]);
    }
    let figment = Figment::from(Serialized::defaults(Settings::default()));
    let figment = layers.iter().fold(figment, Figment::merge);
    let mut settings: Settings = figment.extract().map_err(explained)?;
    if is_emulator {
        emulator::complete(&mut settings, translated);
    }
    together::check(settings, |name| layers.iter().any(|layer| layer.sets(name)))
}

/// Every setting as `section.key`, in order.
pub fn setting_names() -> Vec<String> {
    let mut names = Vec::new();
    for (section, keys) in defaults() {
        let Some(keys) = keys.into_dict() else {
            continue;
        };
        names.extend(keys.into_keys().map(|key| format!("{section}.{key}")));
    }
    names
}

fn defaults() -> Dict {
    Value::serialize(Settings::default())
        .ok()
        .and_then(Value::into_dict)
        .expect("the settings are plain structs of plain values")
}

/// Values from one source, with how that source is called in messages.
struct Layer {
    metadata: Metadata,
    values: Dict,
}

impl Layer {
    /// Returns whether it says something of a setting, `section.key`.
    fn sets(&self, name: &str) -> bool {
        let (section, key) = name.split_once('.').unwrap_or((name, ""));
        let section = self.values.get(section);
        section.is_some_and(|keys| keys.find_ref(key).is_some())
    }
}

impl Layer {
    /// What it says of emulator mode, if anything. What is no boolean is refused later, by name.
    fn is_emulator(&self) -> Option<bool> {
        self.values.get("server")?.find_ref("emulator")?.to_bool()
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        self.metadata.clone()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

fn file_layer(path: &Path) -> Result<Layer> {
    let shown = format!("config file '{}'", path.display());
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::bad_request(format!("cannot read the {shown}: {error}")))?;
    let values: Dict = Toml::from_str(&text).map_err(|error| {
        let line = error
            .span()
            .and_then(|span| text.get(..span.start))
            .map_or(0, |before| {
                before.bytes().filter(|byte| *byte == b'\n').count() + 1
            });
        let problem = error.message().replace('\n', ", ");
        Error::bad_request(format!("{shown}, line {line}: {problem}"))
    })?;
    let metadata = Metadata::named(shown.clone())
        .interpolater(move |_, path| format!("{shown}, setting {}", path.join(".")));
    Ok(Layer { metadata, values })
}

fn environment_layer(environment: &[(String, String)]) -> Result<Layer> {
    let mut values = Dict::new();
    for (name, value) in environment {
        let Some(setting) = name.strip_prefix(ENVIRONMENT_PREFIX) else {
            continue;
        };
        let setting = setting.to_ascii_lowercase();
        if !names_a_section(&setting) {
            continue;
        }
        let setting = setting.replacen(ENVIRONMENT_SEPARATOR, ".", 1);
        set(&mut values, &setting, value).map_err(|nearest| {
            let hint = nearest.map(|name| match name.starts_with('[') {
                true => name,
                false => variable_name(&name),
            });
            unknown(&format!("environment variable {name}"), hint)
        })?;
    }
    let metadata = Metadata::named("environment")
        .interpolater(|_, path| format!("environment variable {}", variable_name(&path.join("."))));
    Ok(Layer { metadata, values })
}

/// Whether a variable means a setting, rightly spelt or not. Scripts around a node have variables
/// of their own, such as one with the path of the binary.
fn names_a_section(variable: &str) -> bool {
    variable.contains(ENVIRONMENT_SEPARATOR)
        || defaults()
            .keys()
            .any(|section| variable.starts_with(&format!("{section}_")))
}

fn variable_name(setting: &str) -> String {
    let name = setting
        .replacen('.', ENVIRONMENT_SEPARATOR, 1)
        .to_ascii_uppercase();
    format!("{ENVIRONMENT_PREFIX}{name}")
}

/// Flags, or what is given like them; `kind` says what they are called in messages.
fn given_layer(kind: &'static str, flags: &[Flag]) -> Result<Layer> {
    let mut values = Dict::new();
    for flag in flags {
        set(&mut values, &flag.setting, &flag.value)
            .map_err(|nearest| unknown(&format!("{kind} {}", flag.shown), nearest))?;
    }
    let flags = flags.to_vec();
    let metadata = Metadata::named(kind).interpolater(move |_, path| {
        let setting = path.join(".");
        // The last one counts, as with every repeated flag.
        let flag = flags.iter().rev().find(|flag| flag.setting == setting);
        format!("{kind} {}", flag.map_or("--set", |flag| &flag.shown))
    });
    Ok(Layer { metadata, values })
}

/// Puts the text of a variable or flag into `values`, as the type that the setting has. If there
/// is no such setting, the error is the nearest one.
fn set(values: &mut Dict, setting: &str, text: &str) -> Result<(), Option<String>> {
    let (section, key) = setting.split_once('.').unwrap_or((setting, ""));
    let default = defaults()
        .get(section)
        .and_then(|keys| keys.find_ref(key))
        .cloned();
    let text = text.trim();
    let number = || text.parse::<i64>().ok().map(Value::from);
    let switch = || text.parse::<bool>().ok().map(Value::from);
    let typed = match default {
        None | Some(Value::Dict(..)) => return Err(nearest_setting(setting)),
        Some(Value::Num(..)) => number(),
        Some(Value::Bool(..)) => switch(),
        Some(_) => None,
    };
    let section = values
        .entry(section.to_owned())
        .or_insert_with(|| Value::from(Dict::new()));
    if let Value::Dict(_, keys) = section {
        // Text that is no number stays text, and the setting's own check refuses it by name.
        keys.insert(key.to_owned(), typed.unwrap_or_else(|| Value::from(text)));
    }
    Ok(())
}

/// What was probably meant: the same key elsewhere, else the most similar setting or section.
fn nearest_setting(setting: &str) -> Option<String> {
    let key = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let names = setting_names();
    if let Some(same_key) = names.iter().find(|name| key(name) == key(setting)) {
        return Some(same_key.clone());
    }
    let likeness = |name: &str| likeness(name, setting);
    let sections = sections()
        .into_iter()
        .map(|name| (likeness(&name), format!("[{name}]")));
    names
        .into_iter()
        .map(|name| (likeness(&name), name))
        .chain(sections)
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, name)| name)
}

fn unknown(source: &str, nearest: Option<String>) -> Error {
    let hint = match nearest {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("the sections are {}", sections().join(", ")),
    };
    Error::bad_request(format!("{source}: there is no such setting; {hint}"))
}

fn sections() -> Vec<String> {
    defaults().into_keys().collect()
}

/// Returns one line for the operator: the source, the value, what is wrong with it.
fn explained(error: figment::Error) -> Error {
    let setting = error.path.join(".");
    let source = match (&error.metadata, &error.profile) {
        (Some(metadata), Some(profile)) => metadata.interpolate(profile, &error.path),
        _ => format!("setting {setting}"),
    };
    let problem = match &error.kind {
        Kind::UnknownField(field, _) => {
            // Depending on the depth, the path holds the field or ends at its section.
            let inside = error.path.last() == Some(field);
            let (source, setting) = match (inside, setting.is_empty()) {
                (true, _) => (source, setting),
                (false, true) => (format!("{source}{field}"), field.clone()),
                (false, false) => (format!("{source}.{field}"), format!("{setting}.{field}")),
            };
            return unknown(&source, nearest_setting(&setting));
        }
        Kind::UnknownVariant(found, known) => {
            format!("'{found}' is not one of {}", known.join(", "))
        }
        Kind::InvalidType(Actual::Str(found), expected) => {
            format!("'{found}' is not {expected}")
        }
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!("{found} is not {expected}")
        }
        Kind::Message(message) => message.clone(),
        other => other.to_string(),
    };
    Error::bad_request(format!("{source}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_files_get_one_line_that_names_the_place() {
        let table: [(&str, &[&str]); 12] = [
            (
                "[server]\nprot = 1\n",
                &["b.toml", "server.prot", "did you mean server.port?"],
            ),
            (
                "[sever]\nport = 1\n",
                &["b.toml", "setting sever", "did you mean [server]?"],
            ),
            (
                "port = 1\n",
                &["b.toml", "setting port", "did you mean server.port?"],
            ),
            (
                "[server]\nkey_file = 'x'\n",
                &["server.key_file", "did you mean auth.key_file?"],
            ),
            (
                "[server]\nport = 99999\n",
                &["b.toml", "server.port", "99999"],
            ),
            ("[server]\nport = 1.5\n", &["server.port", "1.5"]),
            ("[server]\nport = '80'\n", &["server.port", "'80'"]),
            (
                "[server]\nprotocol = 'ftp'\n",
                &["server.protocol", "'ftp'", "http, https"],
            ),
            (
                "[auth]\nenabled = 'no'\n",
                &["auth.enabled", "'no' is not a boolean"],
            ),
            ("[storage]\ndata_path = 5\n", &["storage.data_path", "5"]),
            ("server = 5\n", &["setting server", "5"]),
            ("[server]\n\nport = = 1\n", &["b.toml", "line 3"]),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.toml");
        for (text, fragments) in table {
            std::fs::write(&path, text).unwrap();
            let sources = Sources {
                file: Some(path.clone()),
                ..Sources::default()
            };
            let error = load(sources).expect_err(text).message;
            assert!(!error.contains('\n'), "{error}");
            for fragment in fragments {
                assert!(
                    error.contains(fragment),
                    "{text}: no {fragment} in: {error}"
                );
            }
        }
    }

    #[test]
    fn every_setting_can_be_a_variable_and_a_flag() {
        for setting in setting_names() {
            let (section, key) = setting.split_once('.').unwrap();
            let value = match defaults().get(section).and_then(|keys| keys.find_ref(key)) {
                Some(Value::Num(_, number)) => number.to_u128().unwrap().to_string(),
                Some(Value::Bool(_, switch)) => switch.to_string(),
                Some(Value::String(_, text)) => text.clone(),
                other => panic!("{setting}: {other:?}"),
            };
            let environment = vec![(variable_name(&setting), value.clone())];
            let flags = vec![Flag {
                shown: "--set".to_owned(),
                setting: setting.clone(),
                value,
            }];
            let sources = Sources {
                file: None,
                environment,
                flags,
                ..Sources::default()
            };
            assert_eq!(load(sources), Ok(Settings::default()), "{setting}");
        }
    }
}
