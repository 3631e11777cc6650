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

use super::call_graph::CallGraph;
use super::statements::{Kind, Statement, Statements};
use super::{Tokens, code_alone};
use std::borrow::Cow;
use std::fmt::Write;
use trampoline::{SUFFIX, Signature};

/// The PTX texts that `warpheap::Device::load_module` passes to the driver's linker instead of
/// `ptx`: `ptx` itself if it has no recursive function, else two texts without recursion, which
/// call each other. `ptxas --compile-only` and `nvlink` make the same code of
/// them. Assemble two texts with `--opt-level 1`: `docs/miscompiled.md` has the reason.
///
/// `None` if `ptx` cannot be linked: it has an alias, which may hide a recursion, or a recursive
/// function with a signature that LLVM does not write. The driver then compiles `ptx` without its
/// linker, which takes longer.
pub fn link_inputs(ptx: &str) -> Option<Vec<Cow<'_, str>>> {
    let code = code_alone(ptx);
    if code.contains(".alias") {
        return None;
    }
    let functions = CallGraph::of(&code);
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
