//! Reduces a PTX text to some of its entry points and the code that they reach.
//!
//! A driver compiles each entry point with a copy of every function that it can reach, so kernels
//! that a program does not launch cost seconds. The remaining text is unchanged: directives,
//! variables, the selected entry points, and each function whose name appears as a word anywhere in
//! the remaining text. So indirect calls are covered too.
//!
//! Grammar: PTX ISA, "Statements" and "Directives".

use super::{Ptx, Tokens, code_alone};
use crate::error::{Error, InvalidModule, Result};
use std::collections::HashMap;

/// The text with only these `kernels`. PTX with non-empty debug sections is returned unchanged,
/// because those sections refer to places in all functions.
pub(crate) fn extract_kernels(text: &str, kernels: &[&'static str]) -> Result<String> {
    let code = code_alone(text);
    let statements: Vec<_> = Statements { code: &code, at: 0 }.collect();
    let known: Vec<_> = statements
        .iter()
        .filter(|statement| statement.kind == Kind::Entry)
        .map(|statement| statement.name)
        .collect();
    if let Some(&kernel) = kernels.iter().find(|kernel| !known.contains(kernel)) {
        return Err(Error::InvalidModule(InvalidModule::UnknownKernel {
            kernel,
            known: Ptx::parse(text).entries_in_words(),
        }));
    }
    if statements.iter().any(|statement| statement.is_nonempty_section(&code)) {
        return Ok(text.to_owned());
    }
    let kept = reachable(&code, &statements, kernels);
    let remaining = statements.iter().zip(kept).filter(|(_, kept)| *kept);
    let end = statements.last().map_or(0, |last| last.end);
    Ok(remaining.map(|(statement, _)| &text[statement.start..statement.end]).chain([&text[end..]]).collect())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Entry,
    Function,
    Section,
    /// A variable or a directive, which is always kept.
    Other,
}

/// A statement at top level, with the whitespace and comments before it.
#[derive(Debug)]
struct Statement<'a> {
    kind: Kind,
    /// The name of an entry point or a function.
    name: &'a str,
    start: usize,
    end: usize,
}

impl Statement<'_> {
    /// `.section .debug_info { ... }` with a non-empty body.
    fn is_nonempty_section(&self, code: &str) -> bool {
        let between = code[self.start..self.end].split_once('{').map_or("", |(_, rest)| rest);
        self.kind == Kind::Section && between.trim_end_matches('}').trim() != ""
    }
}

struct Statements<'a> {
    /// The text without comments and string contents.
    code: &'a str,
    at: usize,
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

/// For each statement, whether it is kept.
fn reachable(code: &str, statements: &[Statement<'_>], kernels: &[&str]) -> Vec<bool> {
    // A function that is declared before its definition has two statements.
    let mut named = HashMap::<&str, Vec<usize>>::new();
    for (i, statement) in statements.iter().enumerate().filter(|(_, statement)| statement.kind != Kind::Other)
    {
        named.entry(statement.name).or_default().push(i);
    }
    let is_root = |statement: &Statement<'_>| match statement.kind {
        Kind::Entry => kernels.contains(&statement.name),
        Kind::Function => false,
        Kind::Section | Kind::Other => true,
    };
    let mut kept: Vec<_> = statements.iter().map(is_root).collect();
    let mut to_read: Vec<_> = (0..statements.len()).filter(|i| kept[*i]).collect();
    while let Some(i) = to_read.pop() {
        let mut words = Tokens { rest: &code[statements[i].start..statements[i].end] };
        while let Some(word) = words.next() {
            for &index in named.get(word).into_iter().flatten() {
                if !kept[index] {
                    kept[index] = true;
                    to_read.push(index);
                }
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests;
