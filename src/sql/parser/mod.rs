//! Tokens to a syntax tree, by recursive descent with a bounded depth.

mod clauses;
mod expression;

use super::EXPRESSION_DEPTH_MAX;
use super::ast::SelectQuery;
use super::error::{Checked, Fault, LIMIT, SYNTAX, Span};
use super::lexer::{Kind, Token, near_message, tokens};

/// Words that cannot be names where a name would be ambiguous.
const RESERVED: [&str; 31] = [
    "AND",
    "ARRAY",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "DESC",
    "DISTINCT",
    "ESCAPE",
    "EXISTS",
    "FALSE",
    "FROM",
    "GROUP",
    "IN",
    "JOIN",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "OR",
    "ORDER",
    "SELECT",
    "TOP",
    "TRUE",
    "UDF",
    "UNDEFINED",
    "VALUE",
    "WHERE",
    "LEFT",
    "RIGHT",
];

pub fn is_reserved(word: &str) -> bool {
    RESERVED
        .iter()
        .any(|reserved| reserved.eq_ignore_ascii_case(word))
}

/// Parses one whole query.
pub fn parse(text: &str) -> Checked<SelectQuery> {
    let mut parser = Parser::new(text)?;
    let query = parser.query()?;
    parser.end()?;
    Ok(query)
}

/// Parses what may follow `SELECT *`: a FROM clause and a WHERE clause.
pub fn parse_condition(text: &str) -> Checked<SelectQuery> {
    let mut parser = Parser::new(text)?;
    let query = parser.condition()?;
    parser.end()?;
    Ok(query)
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token<'t>>,
    at: usize,
    depth: usize,
    /// How high the tallest tree parsed so far within the current level is.
    height: usize,
}

/// What stands at the end of the text, should the cursor ever run over it.
const END: Token<'static> = Token {
    kind: Kind::End,
    span: Span { start: 0, end: 0 },
};

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Checked<Self> {
        Ok(Self {
            text,
            tokens: tokens(text)?,
            at: 0,
            depth: 0,
            height: 0,
        })
    }

    fn peek(&self) -> &Token<'t> {
        self.tokens
            .get(self.at)
            .or(self.tokens.last())
            .unwrap_or(&END)
    }

    fn peek_second(&self) -> &Kind<'t> {
        self.tokens
            .get(self.at + 1)
            .map_or(&Kind::End, |token| &token.kind)
    }

    fn span(&self) -> Span {
        self.peek().span
    }

    /// The span of the token before the cursor.
    fn span_before(&self) -> Span {
        self.at
            .checked_sub(1)
            .and_then(|at| self.tokens.get(at))
            .map_or(END.span, |t| t.span)
    }

    fn advance(&mut self) {
        self.at += 1;
    }

    /// Refuses the token at the cursor and says what could stand there.
    fn expected(&self, what: &str) -> Fault {
        let span = self.span();
        let near = self.text.get(span.start..span.end).unwrap_or_default();
        Fault::new(SYNTAX, span, near_message(near, what))
    }

    fn at_word(&self, word: &str) -> bool {
        matches!(self.peek().kind, Kind::Word(w) if w.eq_ignore_ascii_case(word))
    }

    fn at_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek().kind, Kind::Symbol(s) if s == symbol)
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        self.at += usize::from(found);
        found
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let found = self.at_symbol(symbol);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, word: &str) -> Checked<()> {
        if self.take_word(word) {
            Ok(())
        } else {
            Err(self.expected(word))
        }
    }

    fn symbol(&mut self, symbol: &str) -> Checked<()> {
        if self.take_symbol(symbol) {
            Ok(())
        } else {
            Err(self.expected(&format!("'{symbol}'")))
        }
    }

    /// A name that is no reserved word.
    fn name(&mut self) -> Checked<String> {
        match self.peek().kind {
            Kind::Word(word) if !is_reserved(word) => {
                self.advance();
                Ok(word.to_owned())
            }
            _ => Err(self.expected("a name")),
        }
    }

    /// A name where nothing else can stand, so that keywords are names too.
    fn any_name(&mut self) -> Checked<String> {
        match self.peek().kind {
            Kind::Word(word) => {
                self.advance();
                Ok(word.to_owned())
            }
            _ => Err(self.expected("a name")),
        }
    }

    fn end(&mut self) -> Checked<()> {
        self.take_symbol(";");
        if self.peek().kind == Kind::End {
            Ok(())
        } else {
            Err(self.expected("a clause, an operator or the end of the query"))
        }
    }

    /// Runs one level deeper, within the bound, and counts the height of what it built.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Checked<T>) -> Checked<T> {
        if self.depth >= EXPRESSION_DEPTH_MAX {
            return Err(self.too_deep());
        }
        let siblings = std::mem::take(&mut self.height);
        self.depth += 1;
        let result = parse(self)?;
        self.depth -= 1;
        self.grow()?;
        self.height = self.height.max(siblings);
        Ok(result)
    }

    /// Notes that the tree of this level has become one node higher.
    fn grow(&mut self) -> Checked<()> {
        self.height += 1;
        if self.height > EXPRESSION_DEPTH_MAX {
            Err(self.too_deep())
        } else {
            Ok(())
        }
    }

    fn too_deep(&self) -> Fault {
        Fault::new(
            LIMIT,
            self.span(),
            format!("The query nests deeper than {EXPRESSION_DEPTH_MAX} levels"),
        )
    }
}
