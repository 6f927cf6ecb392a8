//! Texts of queries that a thread has parsed lately: applications send the same few again and again, with other parameters.

use super::ast::SelectQuery;
use super::error::Checked;
use super::parser;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// Texts that a thread remembers. When there is one more it begins anew: whatever is still asked for is back soon.
const TEXTS_MAX: usize = 64;
/// Longer texts are parsed each time.
const TEXT_BYTES_MAX: usize = 2 * 1024;

thread_local! {
    static KNOWN: RefCell<HashMap<Box<str>, Arc<SelectQuery>>> = RefCell::default();
}

/// The syntax tree of a text. It depends on nothing else, so that it is never out of date.
pub fn recall_or_parse(text: &str) -> Checked<Arc<SelectQuery>> {
    if let Some(known) = KNOWN.with_borrow(|known| known.get(text).cloned()) {
        return Ok(known);
    }
    let syntax = Arc::new(parser::parse(text)?);
    if text.len() <= TEXT_BYTES_MAX {
        KNOWN.with_borrow_mut(|known| {
            if known.len() >= TEXTS_MAX {
                known.clear();
            }
            known.insert(text.into(), Arc::clone(&syntax));
        });
    }
    Ok(syntax)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_known(text: &str) -> bool {
        KNOWN.with_borrow(|known| known.contains_key(text))
    }

    #[test]
    fn a_text_that_comes_again_has_the_same_tree_and_few_are_kept() {
        let text = "SELECT * FROM c WHERE c.a = @p";
        let first = recall_or_parse(text).unwrap();
        assert_eq!(*first, parser::parse(text).unwrap());
        assert!(Arc::ptr_eq(&first, &recall_or_parse(text).unwrap()));
        for number in 0..10 * TEXTS_MAX {
            let text = format!("SELECT c.a{number} FROM c");
            assert_eq!(
                *recall_or_parse(&text).unwrap(),
                parser::parse(&text).unwrap()
            );
            assert!(KNOWN.with_borrow(HashMap::len) <= TEXTS_MAX);
            assert!(is_known(&text));
        }
    }

    #[test]
    fn neither_faults_nor_long_texts_are_kept() {
        assert!(recall_or_parse("SELECT FROM").is_err());
        assert!(!is_known("SELECT FROM"));
        let long = format!(
            "SELECT * FROM c WHERE c.a = '{}'",
            "x".repeat(TEXT_BYTES_MAX)
        );
        assert!(recall_or_parse(&long).is_ok());
        assert!(!is_known(&long));
    }
}
