//! Removes the functions of C's library that no kernel needs. `warpheap-device` defines them as
//! weak functions, and the compiler keeps them, because they may be called from elsewhere.

use crate::symbols::name_of_function;
use std::collections::BTreeSet;

/// The names in `runtime.rs` of `warpheap-device`.
const RUNTIME: [&str; 6] = ["bcmp", "memcmp", "memcpy", "memmove", "memset", "strlen"];

/// A part of PTX: a declaration or definition of the weak function `name` of [`RUNTIME`], or other
/// text.
struct Part<'a> {
    name: Option<&'a str>,
    text: &'a str,
}

/// `ptx` without the weak functions of C's library that no other function and no variable of it
/// names. They are those that `warpheap-device` defines.
pub fn without_unused(ptx: &str) -> String {
    let parts = parts(ptx);
    let names: BTreeSet<_> = parts.iter().filter_map(|part| part.name).collect();
    let mut used = BTreeSet::new();
    loop {
        let is_used = |part: &&Part| part.name.is_none_or(|name| used.contains(name));
        let texts = || parts.iter().filter(is_used).map(|part| part.text);
        let new = names.iter().filter(|name| !used.contains(**name) && texts().any(|text| has(text, name)));
        let new: Vec<_> = new.copied().collect();
        if new.is_empty() {
            return texts().collect();
        }
        used.extend(new);
    }
}

/// Splits PTX. Everything is in one of the parts.
fn parts(ptx: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    // The parts before `start` are done. A weak function has begun there if it has a name.
    let (mut start, mut at, mut name) = (0, 0, None);
    let mut end = |start: &mut usize, end, name| {
        parts.push(Part { name, text: &ptx[*start..end] });
        *start = end;
    };
    // The start of the line before, if it is a comment that names the function.
    let mut comment = None;
    for line in ptx.split_inclusive('\n') {
        let (first, next) = (at, at + line.len());
        at = next;
        let head = line.strip_prefix(".weak .func").and_then(name_of_function);
        if let Some(head) = head.filter(|head| RUNTIME.contains(head)) {
            end(&mut start, comment.unwrap_or(first), None);
            name = Some(head);
        }
        comment = line.starts_with("\t// .weak\t").then_some(first);
        if name.is_some() && line.starts_with(['}', ';']) {
            end(&mut start, next, name.take());
        }
    }
    end(&mut start, ptx.len(), None);
    parts
}

/// Whether `text` has the symbol `name`.
fn has(text: &str, name: &str) -> bool {
    let is_symbol = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.');
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_symbol) && !text[at + name.len()..].starts_with(is_symbol))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition of a weak function as the compiler writes it.
    fn weak(name: &str, body: &str) -> String {
        format!(
            "\t// .weak\t{name}\n.weak .func  (.param .b32 func_retval0) {name}(\n\t.param .b64 {name}_param_0\n)\n{{\n\t{body}\n\tret;\n\n}}\n"
        )
    }

    fn declared(name: &str) -> String {
        format!(".weak .func  (.param .b32 func_retval0) {name}\n(\n\t.param .b64 {name}_param_0\n)\n;\n")
    }

    #[test]
    fn only_functions_that_are_named_stay() {
        let head = ".version 7.0\n.target sm_70\n";
        let kernel = ".visible .entry k()\n{\n\tcall.uni (retval0), memcmp, (param0);\n\tcall.uni my_strlen, ();\n\tret;\n}\n";
        let table = ".global .u64 table[1] = {generic(memmove)};\n";
        let own = ".func my_strlen()\n{\n\tret;\n}\n";
        let used = weak("memcmp", "call.uni bcmp, ();");
        let [inner, address, unused, by_unused] =
            [("bcmp", ""), ("memmove", ""), ("strlen", "call.uni memset, ();"), ("memset", "")]
                .map(|(name, body)| weak(name, body));
        let ptx =
            [head, &declared("memcmp"), table, kernel, &unused, &used, &address, own, &by_unused, &inner];
        let expected = [head, &declared("memcmp"), table, kernel, &used, &address, own, &inner];
        assert_eq!(without_unused(&ptx.concat()), expected.concat());
        // Without the kernel, nothing names them.
        let ptx = [head, &declared("memcmp"), &used, own, &inner, "\n"].concat();
        assert_eq!(without_unused(&ptx), [head, own, "\n"].concat());
    }

    #[test]
    fn other_text_stays_as_it_is() {
        let never = ".weak .func fail\n()\n.noreturn;\n.visible .entry k()\n{\n\tcall.uni fail, ();\n}\n";
        for ptx in ["", "no end of line", ".weak .global .u32 memcmp;\n", &weak("mine", ""), never] {
            assert_eq!(without_unused(ptx), ptx);
        }
    }
}
