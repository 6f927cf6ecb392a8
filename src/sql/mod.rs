//! The SQL language: lexer, parser, syntax tree, evaluation. Pure: values in, values out.
