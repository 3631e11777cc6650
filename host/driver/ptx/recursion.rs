//! Divides a PTX text with recursive functions into two texts without recursion.
//!
//! NVIDIA's assembler makes wrong code of a function that calls itself, if it assembles the text to
//! be linked (`docs/miscompiled.md`). [`link_inputs`] redirects each call that closes a cycle
//! of the call graph to a *trampoline*, a function that calls the original target:
//!
//! ```text
//!   one text:     f ──► g ──► f          first text:   f ──► g ──► f$trampoline
//!                                        second text:  f$trampoline ──► f
//! ```
//!
//! The trampolines are in a text of their own, so the assembler finds no cycle in either text. The
//! linker resolves the calls between them. Indirect calls are unchanged: the assembler makes no
//! assumption about their targets.
//!
//! Grammar: PTX ISA, "Control Flow Instructions: call" and "Kernel and Function Directives: .func".

mod trampoline;

use super::statements::{Kind, Statement, Statements};
use super::{Tokens, code_alone};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;
use trampoline::{SUFFIX, Signature};

/// The PTX texts that [`Device::load_module`](crate::Device::load_module) passes to the driver's
/// linker instead of `ptx`: `ptx` itself if it has no recursive function, else two texts without
/// recursion, which call each other. `ptxas --compile-only` and `nvlink` make the same code of
/// them.
///
/// `None` if `ptx` cannot be linked: it has an alias, which may hide a recursion, or a recursive
/// function with a signature that LLVM does not write. The driver then compiles `ptx` without its
/// linker, which takes longer.
pub fn link_inputs(ptx: &str) -> Option<Vec<Cow<'_, str>>> {
    let code = code_alone(ptx);
    if code.contains(".alias") {
        return None;
    }
    let functions = Functions::of(&code);
    let calls = functions.closing_calls();
    if calls.is_empty() {
        return Some(vec![Cow::Borrowed(ptx)]);
    }
    let mut targets: Vec<&str> = calls.iter().map(|call| call.target).collect();
    targets.sort_unstable();
    targets.dedup();

    let head = Head::of(&code);
    let (mut externs, mut trampolines) = (String::new(), head.text.clone());
    for target in &targets {
        let statement = functions.definition(target);
        let signature = Signature::of(&code[statement.start..statement.end])?;
        let _ = writeln!(externs, "\n.extern .func {};", signature.declaration(SUFFIX));
        signature.write_trampoline(&mut trampolines);
    }

    let mut insertions: Vec<(usize, &str)> = calls.iter().map(|call| (call.end, SUFFIX)).collect();
    insertions.push((head.end, &externs));
    // The linker resolves visible names only.
    let is_target = |statement: &&Statement<'_>| {
        statement.kind == Kind::Function && targets.binary_search(&statement.name).is_ok()
    };
    for statement in functions.statements.iter().filter(is_target) {
        let mut tokens = Tokens { rest: &code[statement.start..] };
        if tokens.peek() == Some(".func") {
            tokens.next();
            insertions.push((code.len() - tokens.rest.len() - ".func".len(), ".visible "));
        }
    }
    Some(vec![inserted(ptx, insertions).into(), trampolines.into()])
}

/// `text` with each string inserted at its offset.
fn inserted(text: &str, mut insertions: Vec<(usize, &str)>) -> String {
    insertions.sort_by_key(|(at, _)| *at);
    let mut result = String::with_capacity(text.len() + text.len() / 8);
    let mut done = 0;
    for (at, what) in insertions {
        result.push_str(&text[done..at]);
        result.push_str(what);
        done = at;
    }
    result + &text[done..]
}

/// A direct call.
#[derive(Clone, Copy)]
struct Call<'a> {
    target: &'a str,
    /// The offset after the target's name.
    end: usize,
}

/// The functions and kernels of a text, with their calls.
struct Functions<'a> {
    statements: Vec<Statement<'a>>,
    /// Where in `statements` the definition of a function is.
    defined: HashMap<&'a str, usize>,
    /// The calls of each statement.
    calls: Vec<Vec<Call<'a>>>,
}

impl<'a> Functions<'a> {
    fn of(code: &'a str) -> Self {
        let statements: Vec<_> = Statements::of(code).collect();
        let calls: Vec<_> = statements.iter().map(|statement| calls(code, statement)).collect();
        let is_defined = |statement: &Statement<'_>| {
            matches!(statement.kind, Kind::Entry | Kind::Function)
                && code[statement.start..statement.end].ends_with('}')
        };
        let named = statements.iter().enumerate().filter(|(_, statement)| is_defined(statement));
        let defined = named.map(|(index, statement)| (statement.name, index)).collect();
        Functions { statements, defined, calls }
    }

    fn definition(&self, name: &str) -> &Statement<'a> {
        &self.statements[self.defined[name]]
    }

    /// Calls without which the call graph has no cycle: those that a depth-first search finds to
    /// lead back to a function that it has entered and not left.
    fn closing_calls(&self) -> Vec<Call<'a>> {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Entered,
            Left,
        }
        let mut states = vec![State::New; self.statements.len()];
        let mut closing = Vec::new();
        for root in 0..self.statements.len() {
            if states[root] != State::New {
                continue;
            }
            // The functions that were entered, each with its next call.
            let mut path = vec![(root, 0)];
            states[root] = State::Entered;
            while let Some((function, next)) = path.last_mut() {
                let Some(call) = self.calls[*function].get(*next) else {
                    states[*function] = State::Left;
                    path.pop();
                    continue;
                };
                *next += 1;
                let Some(&target) = self.defined.get(call.target) else { continue };
                match states[target] {
                    State::New => {
                        states[target] = State::Entered;
                        path.push((target, 0));
                    }
                    State::Entered => closing.push(*call),
                    State::Left => {}
                }
            }
        }
        closing
    }
}

/// The direct calls in a statement.
fn calls<'a>(code: &'a str, statement: &Statement<'_>) -> Vec<Call<'a>> {
    let mut calls = Vec::new();
    let mut tokens = Tokens { rest: &code[statement.start..statement.end] };
    while let Some(token) = tokens.next() {
        if token != "call" && token != "call.uni" {
            continue;
        }
        // `call (result), target, (arguments);`
        if tokens.peek() == Some("(") {
            while tokens.next().is_some_and(|token| token != ",") {}
        }
        // A register holds the target of an indirect call.
        if let Some(target) = tokens.next().filter(|target| !target.starts_with('%')) {
            calls.push(Call { target, end: statement.end - tokens.rest.len() });
        }
    }
    calls
}

/// The directives before all others: version, target and size of addresses.
struct Head {
    text: String,
    end: usize,
}

impl Head {
    fn of(code: &str) -> Self {
        let is_head = |statement: &Statement<'_>| {
            let first = Tokens { rest: &code[statement.start..] }.next();
            matches!(first, Some(".version" | ".target" | ".address_size"))
        };
        let end = Statements::of(code).take_while(is_head).last().map_or(0, |last| last.end);
        Head { text: format!("{}\n", code[..end].trim()), end }
    }
}

#[cfg(test)]
mod tests;
