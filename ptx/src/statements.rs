//! Splits a PTX text into its statements at top level.
//!
//! Grammar: PTX ISA, "Statements" and "Directives".

use super::Tokens;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Entry,
    Function,
    Section,
    /// A variable or a directive, which is always kept.
    Other,
}

/// A statement at top level, with the whitespace and comments before it.
#[derive(Debug)]
pub(super) struct Statement<'a> {
    pub kind: Kind,
    /// The name of an entry point or a function.
    pub name: &'a str,
    pub start: usize,
    pub end: usize,
}

impl Statement<'_> {
    /// `.section .debug_info { ... }` with a non-empty body.
    pub fn is_nonempty_section(&self, code: &str) -> bool {
        let between = code[self.start..self.end].split_once('{').map_or("", |(_, rest)| rest);
        self.kind == Kind::Section && between.trim_end_matches('}').trim() != ""
    }
}

pub(super) struct Statements<'a> {
    code: &'a str,
    at: usize,
}

impl<'a> Statements<'a> {
    /// The statements of `code`, a text without comments and string contents.
    pub fn of(code: &'a str) -> Self {
        Statements { code, at: 0 }
    }
}

impl<'a> Iterator for Statements<'a> {
    type Item = Statement<'a>;

    fn next(&mut self) -> Option<Statement<'a>> {
        let (start, mut tokens) = (self.at, Tokens { rest: &self.code[self.at..] });
        let mut token = tokens.next()?;
        let (mut kind, mut name) = (Kind::Other, "");
        // These directives end where the next directive begins.
        let is_open = matches!(token, ".version" | ".target" | ".address_size" | ".file" | ".loc");
        let mut depth = 0;
        loop {
            match token {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ if depth > 0 => {}
                ".entry" => (kind, name) = (Kind::Entry, tokens.peek().unwrap_or_default()),
                ".func" => (kind, name) = (Kind::Function, function_name(&tokens)),
                ".section" => kind = Kind::Section,
                _ => {}
            }
            let has_body = kind != Kind::Other;
            let is_end = match token {
                ";" => depth == 0,
                "}" => depth <= 0 && has_body,
                _ => is_open && tokens.peek().is_none_or(|next| next.starts_with('.')),
            };
            if is_end {
                break;
            }
            let Some(next) = tokens.next() else { break };
            token = next;
        }
        self.at = self.code.len() - tokens.rest.len();
        Some(Statement { kind, name, start, end: self.at })
    }
}

/// The name after `.func`. A return parameter in parentheses may precede it.
fn function_name<'a>(tokens: &Tokens<'a>) -> &'a str {
    let mut tokens = Tokens { rest: tokens.rest };
    if tokens.peek() == Some("(") {
        while tokens.next().is_some_and(|token| token != ")") {}
    }
    tokens.next().unwrap_or_default()
}
