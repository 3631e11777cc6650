//! Edits of one source file. They work on tokens, so that bodies of macros are edited as well, and
//! keep every line where it is.

use crate::Error;
use proc_macro2::{Delimiter, LineColumn, TokenStream, TokenTree};
use std::collections::HashSet;
use std::str::FromStr;

/// Types with interior mutability.
const MUTABLE: [&str; 6] = ["Cell", "RefCell", "OnceCell", "OnceLock", "Mutex", "UnsafeCell"];

/// What to do with a file.
#[derive(Debug, Default)]
pub struct Edit {
    /// Lines with the names of tests that are to be removed.
    pub removed: HashSet<usize>,
    /// Whether `cfg(miri)` is true.
    pub as_miri: bool,
}

/// Replacements of parts of a text.
struct Replacements {
    /// Start, end and the new text.
    all: Vec<(LineColumn, LineColumn, String)>,
}

impl Edit {
    /// The edited text.
    pub fn apply(&self, text: &str) -> Result<String, Error> {
        let mut replacements = Replacements { all: Vec::new() };
        self.visit(TokenStream::from_str(text)?, &mut replacements);
        Ok(replacements.apply(text))
    }

    fn visit(&self, tokens: TokenStream, out: &mut Replacements) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut i = 0;
        while let Some(token) = tokens.get(i) {
            if let Some((after, start)) = test_at(&tokens, i) {
                i = self.test(&tokens, i, start, after, out);
                continue;
            }
            match token {
                TokenTree::Ident(ident) if ident == "mod" => publish(&tokens, i, out),
                TokenTree::Ident(ident) if ident == "static" => thread_local(&tokens, i, out),
                TokenTree::Ident(ident) if ident == "thread_local" => i += 2,
                // Benchmarks name it.
                TokenTree::Ident(ident) if ident == "extern" && is_crate(&tokens, i, "test") => {
                    out.replace(&tokens[i], "use ::std::bench as test;");
                    out.remove(&tokens[i + 1], &tokens[i + 3]);
                }
                TokenTree::Group(group) if is_cfg(&tokens, i) => self.cfg(group.stream(), out),
                TokenTree::Group(group) => self.visit(group.stream(), out),
                _ => {}
            }
            i += 1;
        }
    }

    /// Edits the test with attributes from `i` on and the keyword `fn` at `start`, or removes it.
    /// Returns the position after it.
    fn test(
        &self,
        tokens: &[TokenTree],
        i: usize,
        start: usize,
        after: usize,
        out: &mut Replacements,
    ) -> usize {
        let is_removed =
            tokens.get(start + 1).is_some_and(|name| self.removed.contains(&name.span().start().line));
        let body = (start..tokens.len()).find(
            |&at| matches!(&tokens[at], TokenTree::Group(group) if group.delimiter() == Delimiter::Brace),
        );
        match body {
            Some(body) if is_removed => {
                out.remove(&tokens[i], &tokens[body]);
                body + 1
            }
            _ => {
                for at in (i..after).step_by(2) {
                    let text = tokens[at + 1].to_string();
                    let is_of_test = ["test", "should_panic", "ignore", "cfg_attr"]
                        .iter()
                        .any(|name| text.trim_start_matches(['[', ' ']).starts_with(name));
                    if is_of_test {
                        out.remove(&tokens[at], &tokens[at + 1]);
                    }
                }
                publish(tokens, start, out);
                start + 1
            }
        }
    }

    /// Edits the condition of a `cfg`.
    fn cfg(&self, condition: TokenStream, out: &mut Replacements) {
        for token in condition {
            match &token {
                TokenTree::Ident(ident) if ident == "test" || ident == "miri" && self.as_miri => {
                    out.replace(&token, "all()");
                }
                TokenTree::Group(group) => self.cfg(group.stream(), out),
                _ => {}
            }
        }
    }
}

/// Whether attributes at `i` belong to a test: the position after them, and that of `fn`.
fn test_at(tokens: &[TokenTree], i: usize) -> Option<(usize, usize)> {
    let mut at = i;
    let mut is_test = false;
    while is_punct(tokens.get(at), '#')
        && let Some(TokenTree::Group(group)) = tokens.get(at + 1)
    {
        is_test |= ["test", "bench"].contains(&group.stream().to_string().as_str());
        at += 2;
    }
    let is_fn = |token: &TokenTree| matches!(token, TokenTree::Ident(ident) if ident == "fn");
    let start = (at..at + 4).find(|&at| tokens.get(at).is_some_and(is_fn));
    start.filter(|_| is_test).map(|start| (at, start))
}

/// Makes a static with interior mutability one for each thread.
fn thread_local(tokens: &[TokenTree], i: usize, out: &mut Replacements) {
    let find = |c| (i..tokens.len()).find(|&at| is_punct(tokens.get(at), c));
    if i > 0 && is_punct(tokens.get(i - 1), '\'') || !is_punct(tokens.get(i + 2), ':') {
        return;
    }
    let (Some(equals), Some(end)) = (find('='), find(';')) else { return };
    let is_mutable = |token: &TokenTree| {
        let name = token.to_string();
        name.starts_with("Atomic") || MUTABLE.contains(&name.as_str())
    };
    if equals < end && tokens[i + 3..equals].iter().any(is_mutable) {
        out.before(&tokens[i + 3], "::std::ThreadLocal<");
        out.after(&tokens[equals - 1], ">");
        out.before(&tokens[equals + 1], "::std::ThreadLocal::new(|| ");
        out.after(&tokens[end - 1], ")");
    }
}

fn is_punct(token: Option<&TokenTree>, c: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == c)
}

/// Whether `extern crate name;` is at `i`.
fn is_crate(tokens: &[TokenTree], i: usize, name: &str) -> bool {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.to_string() == text);
    is(i + 1, "crate") && is(i + 2, name) && is(i + 3, ";")
}

/// Makes the item at `i` visible in the whole crate.
fn publish(tokens: &[TokenTree], i: usize, out: &mut Replacements) {
    let before = |n: usize| i.checked_sub(n).and_then(|at| tokens.get(at));
    let is_pub = |token: Option<&TokenTree>| token.is_some_and(|token| token.to_string() == "pub");
    match before(1) {
        Some(scope @ TokenTree::Group(_)) if is_pub(before(2)) => out.replace(scope, "(crate)"),
        token if is_pub(token) => {}
        _ => out.before(&tokens[i], "pub(crate) "),
    }
}

/// Whether the group at `i` is an attribute `[cfg(…)]`, or the argument of `cfg!`.
fn is_cfg(tokens: &[TokenTree], i: usize) -> bool {
    let TokenTree::Group(group) = &tokens[i] else { return false };
    let is_cfg =
        |token: &TokenTree| matches!(token, TokenTree::Ident(ident) if ident == "cfg" || ident == "cfg_attr");
    let first = group.stream().into_iter().next();
    let is_attribute = i > 0
        && (is_punct(tokens.get(i - 1), '#') || is_punct(tokens.get(i - 1), '!'))
        && group.delimiter() == Delimiter::Bracket
        && first.is_some_and(|token| is_cfg(&token));
    is_attribute || i > 1 && is_punct(tokens.get(i - 1), '!') && is_cfg(&tokens[i - 2])
}

impl Replacements {
    fn before(&mut self, token: &TokenTree, text: &str) {
        let start = token.span().start();
        self.all.push((start, start, text.into()));
    }

    fn after(&mut self, token: &TokenTree, text: &str) {
        let end = token.span().end();
        self.all.push((end, end, text.into()));
    }

    fn replace(&mut self, token: &TokenTree, text: &str) {
        self.all.push((token.span().start(), token.span().end(), text.into()));
    }

    fn remove(&mut self, first: &TokenTree, last: &TokenTree) {
        self.all.push((first.span().start(), last.span().end(), String::new()));
    }

    fn apply(mut self, text: &str) -> String {
        // Stable: of two at the same place, the first that was made comes first.
        self.all.sort_by_key(|(start, end, _)| (start.line, start.column, end.line, end.column));
        let mut starts = vec![0];
        starts.extend(text.match_indices('\n').map(|(at, _)| at + 1));
        let offset = |at: LineColumn| {
            let line = &text[starts[at.line - 1]..];
            let column = line.char_indices().nth(at.column).map_or(line.len(), |(column, _)| column);
            starts[at.line - 1] + column
        };
        let (mut edited, mut done) = (String::new(), 0);
        for (start, end, new) in &self.all {
            let (start, end) = (offset(*start), offset(*end));
            edited.push_str(&text[done..start]);
            edited.push_str(new);
            // The lines after the replaced part stay where they are.
            edited.extend(text[start..end].chars().filter(|&c| c == '\n'));
            done = end;
        }
        edited + &text[done..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_become_public_functions() {
        let text = "mod a {\n    #[test]\n    #[should_panic]\n    fn b() {\n        c();\n    }\n}\n";
        let edited = Edit::default().apply(text).unwrap();
        assert_eq!(
            edited,
            "pub(crate) mod a {\n    \n    \n    pub(crate) fn b() {\n        c();\n    }\n}\n"
        );
    }

    #[test]
    fn removed_tests_leave_their_lines() {
        let edit = Edit { removed: [2].into(), as_miri: false };
        assert_eq!(edit.apply("#[test]\nfn a() {\n}\nfn b() {}\n").unwrap(), "\n\n\nfn b() {}\n");
    }

    #[test]
    fn statics_with_interior_mutability_are_those_of_a_thread() {
        let edited = Edit::default().apply("static A: AtomicU8 = AtomicU8::new(0);").unwrap();
        assert_eq!(
            edited,
            "static A: ::std::ThreadLocal<AtomicU8> = ::std::ThreadLocal::new(|| AtomicU8::new(0));"
        );
        for same in ["static A: u8 = 0;", "fn a(b: &'static Cell<u8>) {}"] {
            assert_eq!(Edit::default().apply(same).unwrap(), same);
        }
    }

    #[test]
    fn conditions_of_tests_are_true() {
        let text = "#[cfg(not(test))]\nuse a;\n#[cfg(miri)]\nfn b() { if cfg!(miri) {} }\n";
        let edited = Edit::default().apply(text).unwrap();
        assert_eq!(edited, text.replace("test", "all()"));
        let edited = Edit { as_miri: true, ..Edit::default() }.apply(text).unwrap();
        assert_eq!(edited, text.replace("test", "all()").replace("miri", "all()"));
    }
}
