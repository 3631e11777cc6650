use super::*;
use crate::Ptx;

/// Two kernels with the functions that each reaches. `helper` is declared, used and defined.
/// `table` refers to `listed`.
const TEXT: &str = r#"
// Generated
.version 7.0
.target sm_70, debug
.address_size 64
.file 1 "of { no ; kernel // at all"

.func (.param .b32 func_retval0) helper
(
	.param .b64 helper_param_0
)
.noreturn;
.extern .func vprintf(.param .b64 a);
.func lone();
.visible .global .align 8 .b8 state[16];
.global .u64 table[2] = {listed, 0};
	// .globl	first
.visible .entry first(.param .u64 first_param_0)
.maxnreg 32
{
	.reg .b64 %rd<2>; /* lone } */
	{ .shared .b8 piece[8]; mov.u32 %r1, piece; }
	.pragma "nounroll } lone";
	call.uni (retval0), helper, (param0);
	ret;
}
	// .globl	second
.weak .entry second
{
	mov.u64 %rd1, by_address;
	ret;
}
.func (.param .b32 func_retval0) helper(.param .b64 helper_param_0) { call.uni inner, (); ret; }
.func inner() { ret; }
.func by_address() { ret; }
.func listed() { ret; }
.func lone() { call.uni inner, (); ret; }
.file 2 "the end"
"#;

fn names(text: &str) -> Vec<String> {
    let code = code_alone(text);
    let named = Statements::of(&code).filter(|one| !one.name.is_empty());
    named.map(|one| one.name.to_owned()).collect()
}

#[test]
fn only_functions_that_a_kernel_reaches_stay() {
    let names_of = |kernels: &[&'static str]| names(&extract_kernels(TEXT, kernels).unwrap());
    assert_eq!(names_of(&["first"]), ["helper", "first", "helper", "inner", "listed"]);
    assert_eq!(names_of(&["second"]), ["second", "by_address", "listed"]);
    assert_eq!(names_of(&[]), ["listed"]);
}

#[test]
fn the_remaining_text_is_unchanged() {
    let first = extract_kernels(TEXT, &["first"]).unwrap();
    for kept in [
        &TEXT[..TEXT.find("\n.func").unwrap()],
        ".noreturn;",
        "state[16];\n.global .u64 table[2] = {listed, 0};",
    ] {
        assert!(first.contains(kept), "{kept} in {first}");
    }
    let body = &TEXT[TEXT.find(".visible .entry first").unwrap()..TEXT.find("\n\t// .globl	second").unwrap()];
    assert!(first.contains(body) && first.ends_with(".file 2 \"the end\"\n"), "{first}");
    assert_eq!(Ptx::parse(&first).globals, Ptx::parse(TEXT).globals);
}

#[test]
fn all_kernels_are_the_entire_text() {
    let without =
        TEXT.replace(".func lone();\n", "").replace(".func lone() { call.uni inner, (); ret; }\n", "");
    let without = without.replace(".extern .func vprintf(.param .b64 a);\n", "");
    assert_eq!(extract_kernels(TEXT, &["second", "first"]).unwrap(), without);
}

#[test]
fn an_unknown_name_is_an_error() {
    assert_eq!(extract_kernels(TEXT, &["first", "third", "helper"]), Err(UnknownKernel("third")));
    assert!(extract_kernels(TEXT, &["helper"]).is_err(), "a function is no kernel");
    assert!(extract_kernels("no PTX at all", &["first"]).is_err());
}

#[test]
fn a_text_with_debug_sections_is_unchanged() {
    let debug = format!("{TEXT}.section .debug_info {{ .b64 $L__func_begin0 }}\n");
    assert_eq!(extract_kernels(&debug, &["second"]).unwrap(), debug);
    let empty = format!("{TEXT}.section .debug_macinfo {{ }}\n");
    assert!(extract_kernels(&empty, &["second"]).unwrap().len() < TEXT.len());
}

#[test]
fn any_prefix_of_a_text_is_reduced_or_rejected() {
    for end in 0..TEXT.len() {
        let prefix = &TEXT[..end];
        if let Ok(text) = extract_kernels(prefix, &["first"]) {
            assert!(text.contains("first"), "{end}");
        }
    }
}
