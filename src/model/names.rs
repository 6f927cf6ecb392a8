//! The names of databases and containers.

use super::checks::shown_text;
use super::error::{Error, Result};

/// The longest name of a database or container, in characters.
pub const RESOURCE_NAME_CHARS_MAX: usize = 255;

/// These would break the paths of requests.
const ILLEGAL_IN_NAMES: [char; 4] = ['/', '\\', '#', '?'];

/// Checks the id of a database or container; `kind` is the word for it in the message.
///
/// Control characters are refused too: names go into response headers.
pub fn check_resource_name(kind: &str, name: &str) -> Result<()> {
    let chars = name.chars().count();
    let reason = if chars == 0 {
        "it is empty".to_owned()
    } else if chars > RESOURCE_NAME_CHARS_MAX {
        format!("it has {chars} characters")
    } else if let Some(c) = name
        .chars()
        .find(|c| ILLEGAL_IN_NAMES.contains(c) || c.is_control())
    {
        format!("it contains {c:?}")
    } else if name.ends_with(' ') {
        "it ends with a space".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::bad_request(format!(
        "the {kind} name '{}' is invalid: {reason}. Ensure to provide a unique non-empty string less than '255' \
         characters. It may have {RESOURCE_NAME_CHARS_MAX} of them, without '/', '\\', '#' and '?', and must not end with a space",
        shown_text(name)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names() {
        let longest = "ü".repeat(RESOURCE_NAME_CHARS_MAX);
        for name in [
            "a", "colls", " x", "a b", "a.b-c_d", "日本", "%20+&=", &longest,
        ] {
            assert_eq!(check_resource_name("database", name), Ok(()), "{name}");
        }
    }

    #[test]
    fn bad_names_are_refused_and_named() {
        let too_long = "x".repeat(RESOURCE_NAME_CHARS_MAX + 1);
        let cases = [
            ("", "it is empty"),
            ("a/b", "it contains '/'"),
            ("a\\b", r"it contains '\\'"),
            ("#", "it contains '#'"),
            ("why?", "it contains '?'"),
            ("a ", "it ends with a space"),
            (" ", "it ends with a space"),
            ("a\r\nb", r"it contains '\r'"),
            (&too_long, "it has 256 characters"),
        ];
        for (name, reason) in cases {
            let error = check_resource_name("container", name).unwrap_err();
            assert_eq!(error.status(), 400, "{name}");
            assert!(error.message.contains(reason), "{}", error.message);
            assert!(
                error.message.contains("less than '255' characters"),
                "{}",
                error.message
            );
            assert!(
                error.message.starts_with("the container name '"),
                "{}",
                error.message
            );
            assert!(error.message.chars().count() < 400, "{}", error.message);
        }
    }
}
