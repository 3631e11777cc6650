//! Inline assembly for CUDA C++ from the PTX of the fast paths.
//!
//! A function that is linked follows the calling convention: it saves registers to the thread's
//! stack, and reads the heap's handle from memory, which each acquire evicts from the L1 cache. The
//! fast paths call no function, so their bodies can be inlined: parameters become operands of an
//! `asm` statement, and each word of the handle that is loaded becomes one, too, which the compiler
//! takes from the constant bank of kernel parameters.
//!
//! The bodies contain collectives of a warp (`vote`, `shfl`, `match`). nvcc and NVRTC do not move
//! `asm volatile` across branches, which CUDA libraries rely on as well. Other compilers of CUDA
//! C++ are not supported.

use std::collections::BTreeMap;
use std::fmt::Write;
use warpheap::KernelImage;
use warpheap_device::heap::Heap;

/// The functions that are inlined, and their results in C++.
const FUNCTIONS: [(&str, &str); 2] =
    [("wh_malloc_begin", "wh_malloc_step"), ("wh_free_begin", "wh_free_step")];
/// Words of 8 bytes before those of 4 bytes in a handle.
const WIDE_WORDS: usize = Heap::ADDRESSES;
/// The words of each result.
const RESULTS: usize = 3;

/// The header `warpheap_inline.cuh`, with the fast paths of `libraries`, oldest architecture first.
///
/// # Errors
/// If a function of the PTX cannot be inlined.
pub fn header(libraries: &[KernelImage]) -> Result<String, String> {
    let mut text = String::from(
        "// The fast paths of warpheap.cuh, generated from warpheap's device library of this version.\n\
         #ifndef WARPHEAP_INLINE_CUH\n#define WARPHEAP_INLINE_CUH\n",
    );
    let mut newest_first = libraries.iter().rev().peekable();
    let mut directive = "#if";
    while let Some(library) = newest_first.next() {
        let arch = library.capability.0 * 100 + library.capability.1 * 10;
        match newest_first.peek() {
            Some(_) => writeln!(text, "{directive} __CUDA_ARCH__ >= {arch}"),
            None if directive == "#if" => writeln!(text, "#if 1"),
            None => writeln!(text, "#else"),
        }
        .map_err(|error| error.to_string())?;
        directive = "#elif";
        for (name, result) in FUNCTIONS {
            let body =
                Body::of(library.ptx, name).map_err(|why| format!("{name} for {}: {why}", library.arch))?;
            text.push_str(&body.function(name, result));
        }
    }
    text.push_str("#endif\n#endif\n");
    Ok(text)
}

/// A function body as inline assembly.
#[derive(Default)]
struct Body {
    lines: Vec<String>,
    /// The C++ expressions of the input operands, in order.
    inputs: Vec<String>,
}

impl Body {
    fn of(ptx: &str, name: &str) -> Result<Body, String> {
        let head = format!(" {name}(\n");
        let (_, rest) = ptx.split_once(&head).ok_or("it is not in the PTX")?;
        let (_, rest) = rest.split_once("\n{\n").ok_or("it has no body")?;
        let (body, _) = rest.split_once("\n}\n").ok_or("its body does not end")?;
        let (mut text, mut handle) = (Body::default(), None);
        for line in body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")) {
            text.add(line, name, &mut handle)?;
        }
        Ok(text)
    }

    fn add(&mut self, line: &str, name: &str, handle: &mut Option<String>) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with("ld.param.b64") {
            let (register, from) = (words[1].trim_end_matches(','), words[2]);
            if from == format!("[{name}_param_0];") {
                *handle = Some(register.to_owned());
            } else {
                let operand = self.input("\"l\"(argument)".into());
                self.lines.push(format!("mov.b64 {}, %{operand};", renamed(register)));
            }
            return Ok(());
        }
        if let Some(stored) = line.strip_prefix("st.param.b64") {
            let (place, register) = stored.split_once(',').ok_or("a result has no value")?;
            let digits: String =
                place.chars().skip_while(|c| *c != '+').filter(char::is_ascii_digit).collect();
            let result = digits.parse::<usize>().unwrap_or(0) / 8;
            self.lines.push(format!("mov.b64 %{result},{}", renamed(register)));
            return Ok(());
        }
        let of_handle = handle.as_ref().and_then(|handle| line.split_once(&format!("[{handle}")));
        if let Some((load, offset)) = of_handle.filter(|(_, rest)| rest.starts_with(['+', ']'])) {
            return self.load_of_handle(load, offset);
        }
        let is_unknown =
            ["call", "ld.param", "st.param", ".pragma", ".local"].iter().any(|it| line.contains(it));
        if handle.as_ref().is_some_and(|handle| mentions(line, handle)) || is_unknown || line.contains('"') {
            return Err(format!("`{line}` cannot be inlined"));
        }
        self.lines.push(if line == "ret;" { "bra $wh_end;".into() } else { renamed(line) });
        Ok(())
    }

    /// `ld.b64 %rd1, ` and `+16];`: a word of the handle, or `ld.v2.b32 {%r1, %r2}, `: two.
    fn load_of_handle(&mut self, load: &str, offset: &str) -> Result<(), String> {
        let unknown = || format!("`{load}[..{offset}` loads in an unknown way");
        let offset = offset.trim_end_matches("];").trim_start_matches('+');
        let offset: usize = if offset.is_empty() { 0 } else { offset.parse().map_err(|_| unknown())? };
        let (kind, registers) = load.split_once(char::is_whitespace).ok_or_else(unknown)?;
        let bits = kind.rsplit('.').next().unwrap_or_default();
        let registers = registers.trim().trim_end_matches(',').trim_matches(['{', '}']);
        for (i, register) in registers.split(',').map(str::trim).enumerate() {
            let expression = match bits {
                "b64" if offset / 8 + i < WIDE_WORDS => format!("\"l\"(heap.wide[{}])", offset / 8 + i),
                "b32" if offset >= WIDE_WORDS * 8 => {
                    format!("\"r\"(heap.narrow[{}])", offset / 4 + i - 2 * WIDE_WORDS)
                }
                _ => return Err(unknown()),
            };
            let operand = self.input(expression);
            // A load of 4 bytes can have a register of 8, which it extends with zeros.
            let instruction = match bits == "b32" && register.starts_with("%rd") {
                true => "cvt.u64.u32",
                false => &format!("mov.{bits}"),
            };
            self.lines.push(format!("{instruction} {}, %{operand};", renamed(register)));
        }
        Ok(())
    }

    /// The number of the operand with this expression.
    fn input(&mut self, expression: String) -> usize {
        let known = self.inputs.iter().position(|input| *input == expression);
        RESULTS
            + known.unwrap_or_else(|| {
                self.inputs.push(expression);
                self.inputs.len() - 1
            })
    }

    fn function(&self, name: &str, result: &str) -> String {
        let argument = if name.contains("malloc") { "size_t argument" } else { "void *argument" };
        let mut text = format!(
            "__device__ __forceinline__ {result} {name}(const wh_heap_value &heap, {argument}) {{\n    \
             {result} step;\n    asm volatile(\n        \"{{\\n\"\n"
        );
        let ends = ["$wh_end:".to_owned(), "}".to_owned()];
        for line in self.lines.iter().chain(&ends) {
            text.push_str(&format!("        \"{line}\\n\"\n"));
        }
        let inputs = self.inputs.join(", ");
        text.push_str(&format!(
            "        : \"=&l\"(step.words[0]), \"=&l\"(step.words[1]), \"=&l\"(step.rest)\n        : {inputs}\n        \
             : \"memory\");\n    return step;\n}}\n"
        ));
        text
    }
}

/// Whether a line has this register.
fn mentions(line: &str, register: &str) -> bool {
    let mut uses = line.match_indices(register);
    uses.any(|(at, _)| !line[at + register.len()..].starts_with(|c: char| c.is_ascii_digit()))
}

/// The line with registers that differ from those of the surrounding code, and with `%` as inline
/// assembly writes it.
fn renamed(line: &str) -> String {
    let kinds = BTreeMap::from([("p", "whp"), ("r", "whr"), ("rd", "whrd"), ("rs", "whrs")]);
    let mut parts = line.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(part.len());
        let (kind, rest) = part.split_at(end);
        match kinds.get(kind).filter(|_| rest.starts_with(|c: char| c.is_ascii_digit() || c == '<')) {
            Some(own) => text.push_str(own),
            None => text.push_str(&format!("%%{kind}")),
        }
        text.push_str(rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "\
.visible .func  (.param .align 8 .b8 func_retval0[24]) wh_malloc_begin(
	.param .b64 wh_malloc_begin_param_0,
	.param .b64 wh_malloc_begin_param_1
)
{
	.reg .pred 	%p<3>;
	.reg .b64 	%rd<4>;

	ld.param.b64 	%rd1, [wh_malloc_begin_param_0];
	ld.param.b64 	%rd2, [wh_malloc_begin_param_1];
	ld.b64 	%rd3, [%rd1+16];
	ld.v2.b32 	{%r2, %r19}, [%rd1+112];
	ld.b32 	%rd8, [%rd1+132];
	mov.u32 	%r4, %laneid;
	@%p1 bra 	$L__BB1_2;
	st.param.b64 	[func_retval0+16], %rd3;
	st.param.b64 	[func_retval0], %rd2;
	ret;

}
";

    #[test]
    fn parameters_and_words_of_the_handle_become_operands() {
        let text = Body::of(PTX, "wh_malloc_begin").unwrap();
        assert_eq!(
            text.inputs,
            [
                "\"l\"(argument)",
                "\"l\"(heap.wide[2])",
                "\"r\"(heap.narrow[0])",
                "\"r\"(heap.narrow[1])",
                "\"r\"(heap.narrow[5])"
            ]
        );
        let lines: Vec<_> = text.lines.iter().map(|line| line.replace('\t', " ")).collect();
        assert_eq!(
            lines,
            [
                ".reg .pred  whp<3>;",
                ".reg .b64  whrd<4>;",
                "mov.b64 whrd2, %3;",
                "mov.b64 whrd3, %4;",
                "mov.b32 whr2, %5;",
                "mov.b32 whr19, %6;",
                "cvt.u64.u32 whrd8, %7;",
                "mov.u32  whr4, %%laneid;",
                "@whp1 bra  $L__BB1_2;",
                "mov.b64 %2, whrd3;",
                "mov.b64 %0, whrd2;",
                "bra $wh_end;",
            ]
        );
    }

    #[test]
    fn another_register_is_not_the_handle() {
        let text = Body::of(&PTX.replace("[%rd1+16]", "[%rd15]"), "wh_malloc_begin").unwrap();
        assert!(text.lines.iter().any(|line| line.contains("[whrd15]")), "{:?}", text.lines);
    }

    #[test]
    fn what_cannot_be_inlined_is_an_error() {
        for (old, new) in [
            ("mov.u32 	%r4, %laneid;", "call.uni f;"),
            ("mov.u32 	%r4, %laneid;", "add.s64 %rd2, %rd1, 8;"),
            ("[%rd1+16]", "[%rd1+112]"),
            ("[%rd1+16]", "[%rd1, 16]"),
            ("st.param.b64 	[func_retval0], %rd2;", "st.param.v2.b64 	[func_retval0], {%rd2, %rd3};"),
            ("mov.u32 	%r4, %laneid;", ".pragma \"nounroll\";"),
            ("wh_malloc_begin(", "other("),
        ] {
            assert!(Body::of(&PTX.replace(old, new), "wh_malloc_begin").is_err(), "{new}");
        }
    }
}
