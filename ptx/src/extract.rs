//! Reduces a PTX text to some of its entry points and the code that they reach.
//!
//! A driver compiles each entry point with a copy of every function that it can reach, so kernels
//! that a program does not launch cost seconds. The remaining text is unchanged: directives,
//! variables, the selected entry points, and each function whose name appears as a word anywhere in
//! the remaining text. So indirect calls are covered too.

use super::statements::{Kind, Statement, Statements};
use super::{Tokens, code_alone};
use std::collections::HashMap;

/// A kernel that is not in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownKernel<'k>(pub &'k str);

/// The text with only these `kernels`. PTX with non-empty debug sections is returned unchanged,
/// because those sections refer to places in all functions.
///
/// # Errors
/// The first of `kernels` that is not in the text.
pub fn extract_kernels<'k>(text: &str, kernels: &[&'k str]) -> Result<String, UnknownKernel<'k>> {
    let code = code_alone(text);
    let statements: Vec<_> = Statements::of(&code).collect();
    let known: Vec<_> = statements
        .iter()
        .filter(|statement| statement.kind == Kind::Entry)
        .map(|statement| statement.name)
        .collect();
    if let Some(&kernel) = kernels.iter().find(|kernel| !known.contains(kernel)) {
        return Err(UnknownKernel(kernel));
    }
    if statements.iter().any(|statement| statement.is_nonempty_section(&code)) {
        return Ok(text.to_owned());
    }
    let kept = reachable(&code, &statements, kernels);
    let remaining = statements.iter().zip(kept).filter(|(_, kept)| *kept);
    let end = statements.last().map_or(0, |last| last.end);
    Ok(remaining.map(|(statement, _)| &text[statement.start..statement.end]).chain([&text[end..]]).collect())
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
