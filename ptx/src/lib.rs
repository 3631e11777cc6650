//! Reads PTX as LLVM writes it: its kernels with their parameters, its variables, its calls and the
//! stack that they need. Reduces a text to some of its kernels or to what is used, divides a text
//! with recursion, and reads and writes the trailers of cubins.
//!
//! Grammar: PTX ISA, "Kernel and Function Directives: .entry" and "Kernel Function Parameter
//! Attributes".

mod call_graph;
mod cubin;
mod extract;
mod recursion;
mod statements;
mod symbols;
mod unused;

pub use call_graph::{Stack, stacks};
pub use cubin::{Cubin, with_trailer};
pub use extract::{UnknownKernel, extract_kernels};
pub use recursion::link_inputs;
use std::collections::BTreeMap;
pub use symbols::{entries, functions, register_limit, unresolved};
pub use unused::without_unused;

/// Size and alignment of one parameter or variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
}

/// The declarations of a PTX text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ptx {
    /// The PTX version, for instance `7.0`.
    pub version: String,
    /// The minimum architecture, for instance `sm_70`.
    pub target: String,
    /// The parameters of each kernel, in order.
    pub entries: BTreeMap<String, Vec<Param>>,
    /// Each variable in global memory that is visible to the host.
    pub globals: BTreeMap<String, Param>,
}

impl Ptx {
    /// Parses the declarations. Skips bodies and everything that is not a declaration.
    pub fn parse(text: &str) -> Ptx {
        let code = code_alone(text);
        let mut tokens = Tokens { rest: &code };
        let mut ptx = Ptx::default();
        while let Some(token) = tokens.next() {
            match token {
                ".version" => ptx.version = tokens.next().unwrap_or_default().into(),
                ".target" => ptx.target = tokens.next().unwrap_or_default().into(),
                ".entry" => {
                    let name = tokens.next().unwrap_or_default().into();
                    ptx.entries.insert(name, parameters(&mut tokens));
                }
                ".visible" if tokens.peek() == Some(".global") => ptx.globals.extend(variable(&mut tokens)),
                _ => {}
            }
        }
        ptx
    }
}

/// The parameters up to the closing parenthesis. Empty if no parenthesis follows the name.
fn parameters(tokens: &mut Tokens<'_>) -> Vec<Param> {
    let mut all = Vec::new();
    if tokens.peek() != Some("(") {
        return all;
    }
    let mut one = Declaration::default();
    while let Some(token) = tokens.next() {
        match token {
            "," | ")" => all.extend(std::mem::take(&mut one).param()),
            // `.ptr .space .align n` describes the target of a pointer, not the parameter.
            ".ptr" => one.is_pointer = true,
            ".align" => one.align(tokens.next()),
            "[" => one.count = tokens.next().and_then(|n| n.parse().ok()),
            type_name => one.element = one.element.or(size_of_type(type_name)),
        }
        if token == ")" {
            break;
        }
    }
    all
}

/// A variable, from after `.visible` to its value or its end: `.global .align 8 .b8 name[16];`.
fn variable(tokens: &mut Tokens<'_>) -> Option<(String, Param)> {
    let (mut one, mut name) = (Declaration::default(), None);
    while let Some(token) = tokens.next() {
        match token {
            ";" | "=" => break,
            ".align" => one.align(tokens.next()),
            "[" => one.count = tokens.next().and_then(|n| n.parse().ok()),
            _ if token.starts_with('.') => one.element = one.element.or(size_of_type(token)),
            "]" => {}
            _ => name = name.or(Some(token.to_owned())),
        }
    }
    Some((name?, one.param()?))
}

/// A parameter or variable that is being parsed: `.param .align 8 .b8 name[16]`.
#[derive(Default)]
struct Declaration {
    align: Option<usize>,
    element: Option<usize>,
    count: Option<usize>,
    is_pointer: bool,
}

impl Declaration {
    fn align(&mut self, value: Option<&str>) {
        if !self.is_pointer {
            self.align = value.and_then(|v| v.parse().ok());
        }
    }

    fn param(self) -> Option<Param> {
        let element = self.element?;
        Some(Param { size: element * self.count.unwrap_or(1), align: self.align.unwrap_or(element) })
    }
}

/// Size in bytes of `.u32` and the like. `None` if the name is not a fundamental type.
fn size_of_type(name: &str) -> Option<usize> {
    let bits = match name {
        ".f16x2" | ".bf16x2" => 32,
        ".bf16" => 16,
        _ => {
            let name = name.strip_prefix('.')?;
            name.strip_prefix(['b', 'u', 's', 'f'])?.parse::<usize>().ok()?
        }
    };
    matches!(bits, 8 | 16 | 32 | 64 | 128).then_some(bits / 8)
}

/// The text with comments replaced by spaces and string contents by `_`. Offsets do not change.
fn code_alone(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(['/', '"']) {
        let (before, from) = rest.split_at(start);
        let up_to = |end: &str, at: usize| from[at..].find(end).map_or(from.len(), |i| at + i + end.len());
        let (len, filler) = match &from.as_bytes()[..from.len().min(2)] {
            b"//" => (from.find('\n').unwrap_or(from.len()), " "),
            b"/*" => (up_to("*/", 2), " "),
            [b'"', ..] => (up_to("\"", 1), "_"),
            _ => (1, "/"),
        };
        code.push_str(before);
        code.push_str(&filler.repeat(len));
        rest = &from[len..];
    }
    code.push_str(rest);
    code
}

/// Tokenizer: words and single punctuation marks.
struct Tokens<'a> {
    rest: &'a str,
}

const MARKS: [char; 9] = ['(', ')', '[', ']', '{', '}', ',', ';', ':'];

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let token = self.peek()?;
        let start = self.rest.len() - self.rest.trim_start().len();
        self.rest = &self.rest[start + token.len()..];
        Some(token)
    }

    fn peek(&self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let first = rest.chars().next()?;
        let end = match MARKS.contains(&first) {
            true => 1,
            false => rest.find(|c: char| c.is_whitespace() || MARKS.contains(&c)).unwrap_or(rest.len()),
        };
        Some(&rest[..end])
    }
}

#[cfg(test)]
mod tests;
