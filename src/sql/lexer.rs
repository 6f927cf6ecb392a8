//! Text to tokens, each with its place.

use super::error::{Checked, Fault, LIMIT, SYNTAX, Span, shorten};
use super::{QUERY_TEXT_BYTES_MAX, number};
use serde_json::Number;
use std::borrow::Cow;

#[derive(Clone, Debug, PartialEq)]
pub enum Kind<'t> {
    /// A name or a keyword; the parser decides by place.
    Word(&'t str),
    /// `@name`, with the sign.
    Parameter(&'t str),
    Number(Number),
    Text(Cow<'t, str>),
    Symbol(&'static str),
    End,
}

#[derive(Clone, Debug)]
pub struct Token<'t> {
    pub kind: Kind<'t>,
    pub span: Span,
}

/// Longest first, so that the first match is the right one.
const SYMBOLS: [&str; 34] = [
    ">>>", "<<", ">>", "<=", ">=", "<>", "!=", "??", "||", "(", ")", "[", "]", "{", "}", ",", ".",
    ":", "?", "*", "/", "%", "+", "-", "=", "<", ">", "&", "|", "^", "~", "!", ";", "$",
];

pub fn tokens(text: &str) -> Checked<Vec<Token<'_>>> {
    if text.len() > QUERY_TEXT_BYTES_MAX {
        return Err(Fault::new(
            LIMIT,
            Span::default(),
            format!(
                "The SQL query text exceeded the maximum limit of {QUERY_TEXT_BYTES_MAX} bytes: {}",
                text.len()
            ),
        ));
    }
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::with_capacity(text.len() / 4 + 1);
    loop {
        let token = lexer.next()?;
        let last = token.kind == Kind::End;
        tokens.push(token);
        if last {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn take_while(&mut self, mut wanted: impl FnMut(char) -> bool) -> &'t str {
        let rest = self.rest();
        let length = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    fn fault(&self, start: usize) -> Fault {
        let end = self.at.max(start);
        let near = self.text.get(start..end).unwrap_or_default();
        Fault::new(SYNTAX, Span::new(start, end), near_message(near, ""))
    }

    fn skip_blanks_and_comments(&mut self) -> Checked<()> {
        loop {
            self.take_while(|c| c.is_whitespace() || c == '\u{feff}');
            if self.rest().starts_with("--") {
                self.take_while(|c| c != '\n');
            } else if self.rest().starts_with("/*") {
                let start = self.at;
                match self.rest().find("*/") {
                    Some(length) => self.at += length + 2,
                    None => {
                        self.at += 2;
                        return Err(self.fault(start));
                    }
                }
            } else {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> Checked<Token<'t>> {
        self.skip_blanks_and_comments()?;
        let start = self.at;
        let kind = match self.rest().chars().next() {
            None => Kind::End,
            Some('"' | '\'') => self.string()?,
            Some('@') => {
                self.at += 1;
                let name = self.take_while(is_name_part);
                if name.is_empty() {
                    return Err(self.fault(start));
                }
                Kind::Parameter(self.text.get(start..self.at).unwrap_or_default())
            }
            Some(c) if c.is_ascii_digit() => self.number()?,
            Some('.')
                if self
                    .rest()
                    .chars()
                    .nth(1)
                    .is_some_and(|c| c.is_ascii_digit()) =>
            {
                self.number()?
            }
            Some(c) if is_name_start(c) => Kind::Word(self.take_while(is_name_part)),
            Some(c) => match SYMBOLS
                .iter()
                .find(|symbol| self.rest().starts_with(**symbol))
            {
                Some(symbol) => {
                    self.at += symbol.len();
                    Kind::Symbol(symbol)
                }
                None => {
                    self.at += c.len_utf8();
                    return Err(self.fault(start));
                }
            },
        };
        Ok(Token {
            kind,
            span: Span::new(start, self.at),
        })
    }

    fn number(&mut self) -> Checked<Kind<'t>> {
        let start = self.at;
        if self.rest().starts_with("0x") || self.rest().starts_with("0X") {
            self.at += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            let value = u64::from_str_radix(digits, 16).map_err(|_| self.fault(start))?;
            return Ok(Kind::Number(value.into()));
        }
        self.take_while(|c| c.is_ascii_digit());
        if self.rest().starts_with('.') {
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        if self.rest().starts_with(['e', 'E']) {
            let before = self.at;
            self.at += 1;
            if self.rest().starts_with(['+', '-']) {
                self.at += 1;
            }
            if self.take_while(|c| c.is_ascii_digit()).is_empty() {
                self.at = before;
            }
        }
        if self.rest().starts_with(is_name_start) {
            self.take_while(is_name_part);
            return Err(self.fault(start));
        }
        let digits = self.text.get(start..self.at).unwrap_or_default();
        number::parse(digits)
            .map(Kind::Number)
            .ok_or_else(|| self.fault(start))
    }

    fn string(&mut self) -> Checked<Kind<'t>> {
        let start = self.at;
        let quote = if self.rest().starts_with('"') {
            '"'
        } else {
            '\''
        };
        self.at += 1;
        let plain = self.take_while(|c| c != quote && c != '\\');
        if self.rest().starts_with(quote) {
            self.at += 1;
            return Ok(Kind::Text(Cow::Borrowed(plain)));
        }
        let mut value = String::from(plain);
        loop {
            let Some(c) = self.rest().chars().next() else {
                return Err(self.fault(start));
            };
            self.at += c.len_utf8();
            if c == quote {
                return Ok(Kind::Text(Cow::Owned(value)));
            }
            if c == '\\' {
                value.push(self.escape(start)?);
            } else {
                value.push(c);
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self, start: usize) -> Checked<char> {
        let Some(c) = self.rest().chars().next() else {
            return Err(self.fault(start));
        };
        self.at += c.len_utf8();
        Ok(match c {
            '"' | '\'' | '\\' | '/' => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let unit = self.hex4(start)?;
                if (0xD800..0xDC00).contains(&unit) && self.rest().starts_with("\\u") {
                    self.at += 2;
                    let low = self.hex4(start)?;
                    char::decode_utf16([unit, low])
                        .next()
                        .and_then(Result::ok)
                        .ok_or_else(|| self.fault(start))?
                } else {
                    char::from_u32(unit.into()).ok_or_else(|| self.fault(start))?
                }
            }
            _ => return Err(self.fault(start)),
        })
    }

    fn hex4(&mut self, start: usize) -> Checked<u16> {
        let digits = self
            .rest()
            .get(..4)
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let digits = digits.ok_or_else(|| self.fault(start))?;
        self.at += 4;
        u16::from_str_radix(digits, 16).map_err(|_| self.fault(start))
    }
}

/// Names the text that does not fit, and what would have.
pub fn near_message(near: &str, expected: &str) -> String {
    let near = match near {
        "" => "Syntax error, unexpected end of the query text.".to_owned(),
        near => format!("Syntax error, incorrect syntax near '{}'.", shorten(near)),
    };
    if expected.is_empty() {
        near
    } else {
        format!("{near} Expected {expected}.")
    }
}

pub fn is_name_start(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

pub fn is_name_part(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind<'_>> {
        tokens(text).unwrap().into_iter().map(|t| t.kind).collect()
    }

    #[test]
    fn strings_numbers_comments() {
        let text = Kind::Text("a'b\n😀é".into());
        assert_eq!(
            kinds(r#"'a\'b\n\uD83D\uDE00\u00e9'"#),
            vec![text, Kind::End]
        );
        assert_eq!(
            kinds("1 -- note\n /* x */ 0x1F .5 1e3"),
            vec![
                Kind::Number(1.into()),
                Kind::Number(31.into()),
                Kind::Number(Number::from_f64(0.5).unwrap()),
                Kind::Number(1000.into()),
                Kind::End
            ]
        );
    }

    #[test]
    fn refuses_with_place() {
        for (text, start, end) in [
            ("SELECT 'abc", 7, 11),
            ("a # b", 2, 3),
            ("'\\q'", 0, 3),
            ("/* x", 0, 2),
            ("1a", 0, 2),
        ] {
            let fault = tokens(text).unwrap_err();
            assert_eq!((fault.span.start, fault.span.end), (start, end), "{text}");
        }
    }
}
