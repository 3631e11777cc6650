//! Trampolines: functions that pass their parameters to another function, and its result back.
//!
//! Grammar: PTX ISA, "Kernel and Function Directives: .func".

use crate::size_of_type;
use std::fmt::Write;

/// What the name of a trampoline ends with. No symbol of rustc or LLVM ends so.
pub(super) const SUFFIX: &str = "$trampoline";

/// The declaration of a function without its directives.
pub(super) struct Signature<'a> {
    result: Option<Value<'a>>,
    name: &'a str,
    parameters: Vec<Value<'a>>,
}

impl<'a> Signature<'a> {
    /// Parses the definition `.func (result) name (parameters) { .. }`. `None` for a declaration
    /// that differs from what LLVM writes.
    pub fn of(definition: &'a str) -> Option<Self> {
        let (_, rest) = definition.split_once(".func")?;
        let rest = rest.trim_start();
        let (result, rest) = match rest.strip_prefix('(') {
            Some(rest) => rest.split_once(')')?,
            None => ("", rest),
        };
        let (name, rest) = rest.split_once('(')?;
        let (parameters, _) = rest.split_once(')')?;
        let mut result = values(result)?;
        Some(Signature { result: result.pop(), name: name.trim(), parameters: values(parameters)? })
    }

    /// `(result) name-and-suffix (parameters)`.
    pub fn declaration(&self, suffix: &str) -> String {
        let list = |values: &[Value<'_>]| {
            let each: Vec<_> = values.iter().map(|value| value.declared_as(value.name)).collect();
            each.join(", ")
        };
        let result = self
            .result
            .as_ref()
            .map_or_else(String::new, |value| format!("({}) ", value.declared_as(value.name)));
        format!("{result}{}{suffix} ({})", self.name, list(&self.parameters))
    }

    /// Writes the declaration of the function and the definition of its trampoline.
    pub fn write_trampoline(&self, text: &mut String) {
        let _ = writeln!(text, ".extern .func {};", self.declaration(""));
        let _ = writeln!(text, ".visible .func {}\n{{", self.declaration(SUFFIX));
        text.push_str("\t.reg .b16 %x8;\n\t.reg .b16 %x16;\n\t.reg .b32 %x32;\n\t.reg .b64 %x64;\n");
        let mut arguments = Vec::new();
        for (index, parameter) in self.parameters.iter().enumerate() {
            let argument = format!("$argument{index}");
            let _ = writeln!(text, "\t{};", parameter.declared_as(&argument));
            parameter.write_copy(text, parameter.name, &argument);
            arguments.push(argument);
        }
        let arguments = arguments.join(", ");
        match &self.result {
            None => {
                let _ = writeln!(text, "\tcall.uni {}, ({arguments});", self.name);
            }
            Some(result) => {
                let _ = writeln!(text, "\t{};", result.declared_as("$result"));
                let _ = writeln!(text, "\tcall.uni ($result), {}, ({arguments});", self.name);
                result.write_copy(text, "$result", result.name);
            }
        }
        text.push_str("\tret;\n}\n");
    }
}

/// A parameter or a result: `.param .align 8 .b8 name[16]`.
pub(super) struct Value<'a> {
    /// All before the name.
    kind: &'a str,
    pub name: &'a str,
    /// `[16]`, or empty.
    array: &'a str,
    bytes: usize,
    align: usize,
}

/// The values of a list without its parentheses.
pub(super) fn values(list: &str) -> Option<Vec<Value<'_>>> {
    list.split(',').map(str::trim).filter(|one| !one.is_empty()).map(Value::of).collect()
}

impl<'a> Value<'a> {
    fn of(declaration: &'a str) -> Option<Self> {
        let (declared, array) = declaration.split_at(declaration.find('[').unwrap_or(declaration.len()));
        let declared = declared.trim_end();
        let (kind, name) = declared.split_at(declared.rfind(char::is_whitespace)? + 1);
        let mut words = kind.split_whitespace();
        let (mut align, mut element) = (None, None);
        if words.next()? != ".param" {
            return None;
        }
        while let Some(word) = words.next() {
            match word {
                ".align" => align = Some(words.next()?.parse().ok()?),
                _ => element = Some(size_of_type(word)?),
            }
        }
        let count = match array.strip_prefix('[') {
            Some(count) => count.trim_end().strip_suffix(']')?.trim().parse().ok()?,
            None => 1,
        };
        let element = element?;
        Some(Value {
            kind: kind.trim_end(),
            name,
            array,
            bytes: element.checked_mul(count)?,
            align: align.unwrap_or(element),
        })
    }

    fn declared_as(&self, name: &str) -> String {
        format!("{} {name}{}", self.kind, self.array)
    }

    /// Copies the value between two variables, in the largest pieces that its alignment allows.
    pub fn write_copy(&self, text: &mut String, from: &str, to: &str) {
        let piece = [8, 4, 2, 1]
            .into_iter()
            .find(|piece| self.bytes.is_multiple_of(*piece) && self.align.is_multiple_of(*piece));
        let piece = piece.unwrap_or(1);
        let bits = piece * 8;
        for at in (0..self.bytes).step_by(piece) {
            let _ = writeln!(text, "\tld.param.b{bits} %x{bits}, [{from}+{at}];");
            let _ = writeln!(text, "\tst.param.b{bits} [{to}+{at}], %x{bits};");
        }
    }
}
