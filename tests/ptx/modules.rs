//! Whole modules: the PTX that tests have as a file is complete; kernels contain the code for
//! messages of panics only if asked to, and of C's library the functions that they call; the
//! kernels of the benchmark suites declare CUDA's `malloc` and `free`, for the driver to link, and
//! no other module does. Rust's collections allocate from them there.

use crate::support::assembler::{assemble, assemble_apart, ptxas};
use crate::support::{SHIPPED_KERNELS, built, built_with};
use std::path::Path;

/// The CPU never reads the bodies of these kernels.
const FILES: [(&str, &str); 3] = [
    ("driver/kernels.ptx", include_str!("../driver/kernels.ptx")),
    ("driver/recursion.ptx", include_str!("../driver/recursion.ptx")),
    ("driver/kernel_arguments/kernels.ptx", include_str!("../driver/kernel_arguments/kernels.ptx")),
];

#[test]
fn ptxas_accepts_the_ptx_of_the_driver_tests() {
    let Some(ptxas) = ptxas() else { return };
    for (file, ptx) in FILES {
        let kernels = assemble(&ptxas, ptx, "sm_75");
        assert_eq!(kernels.len(), ptx.matches(".visible .entry ").count(), "{file}");
    }
}

#[test]
#[should_panic(expected = "ptxas rejects the kernels")]
fn a_missing_declaration_is_found() {
    let Some(ptxas) = ptxas() else { panic!("ptxas rejects the kernels, or would if it were there") };
    let (_, ptx) = FILES[2];
    let declaration = ptx.lines().find(|line| line.contains(".local ")).expect("a kernel has local memory");
    assemble(&ptxas, &ptx.replace(declaration, ""), "sm_75");
}

/// A function of `core::fmt`, in a mangled name.
const FORMATS: &str = "4core3fmt";

/// The kernels of the harness, compiled with these features of the device crate.
fn kernels(features: &[&str]) -> Option<String> {
    let gpu = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu");
    built_with("harness/kernels", "sm_80", |builder| builder.device_crate(gpu, features.iter().copied()))
}

#[test]
fn kernels_format_messages_only_if_asked_to() {
    let Some(without) = kernels(&["panic-handler"]) else { return };
    let Some(with) = kernels(&["panic-handler", "panic-message"]) else { return };
    assert!(with.contains(FORMATS) && !without.contains(FORMATS));
    let Some(ptxas) = ptxas() else { return };
    let entries = warpheap_build::entries(&with).count();
    let parts = assemble_apart(&ptxas, &with, "sm_90");
    assert_eq!(parts.iter().filter(|part| part.registers.is_some()).count(), entries);
}

const NAMES: [&str; 6] = ["bcmp", "memcmp", "memcpy", "memmove", "memset", "strlen"];

/// The body of the weak function `name`.
fn body<'a>(ptx: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = ptx.split_once(&format!("\t// .weak\t{name}\n"))?;
    Some(rest.split_once("\n}")?.0)
}

#[test]
fn kernels_contain_the_functions_that_they_call_and_no_others() {
    let Some(ptx) = built_with("tests/language/src/kernels", "sm_80", |builder| builder) else { return };
    for name in NAMES {
        let body = body(&ptx, name).unwrap_or_else(|| panic!("{name}"));
        assert!(body.contains("\tret;") && !body.contains("call"), "{name} is complete: {body}");
    }
    let Some(others) = built_with("harness/kernels", "sm_80", |builder| builder) else { return };
    assert!(!others.contains(".weak .func"));
}

const MODULE: &str = "harness/suite_kernels";
/// The name of the global allocator that `global_heap!` defines.
const GLOBAL_HEAP: &str = "warpheap_global_heap";

/// The functions that `text` declares without a body.
fn external(text: &str) -> Vec<&str> {
    let declared = text.lines().filter_map(|line| line.strip_prefix(".extern .func"));
    declared.filter_map(|rest| rest.split([' ', ')']).rfind(|word| !word.is_empty())).collect()
}

/// Whether the functions and kernels of `text` contain a call of `function`.
fn calls(text: &str, function: &str) -> bool {
    text.lines().map(str::trim).any(|line| {
        // `call.uni (retval0), malloc, (param0);`, on one line or on several.
        let mut words = line.split([' ', ',', '\t']).filter(|word| !word.is_empty());
        words.any(|word| word == function) && !line.starts_with(".extern")
    })
}

#[test]
fn only_the_suites_declare_malloc_and_free() {
    for folder in SHIPPED_KERNELS {
        for arch in ["sm_70", "sm_80"] {
            let Some(text) = built(folder, arch) else { return };
            let expected: &[&str] = if folder == MODULE { &["malloc", "free"] } else { &[] };
            assert_eq!(external(&text), expected, "{folder} for {arch}");
            for function in expected {
                assert!(calls(&text, function), "{folder} for {arch} does not call {function}");
            }
        }
    }
}

#[test]
fn collections_are_compiled_for_both_global_allocators() {
    for (folder, has_heap) in [("harness/kernels", true), (MODULE, false)] {
        let Some(text) = built(folder, "sm_80") else { return };
        assert_eq!(text.contains(GLOBAL_HEAP), has_heap, "{folder}");
        for collection in ["vec", "map", "string"] {
            let entry = format!(".visible .entry collect_{collection}(");
            assert!(text.contains(&entry), "{folder} has no {entry}");
        }
    }
}

#[test]
fn declarations_and_calls_are_found() {
    let text = ".extern .func  (.param .b64 func_retval0) malloc\n(\n\t.param .b64 p\n)\n;\n\
                .extern .func free\n(\n\t.param .b64 p\n)\n;\n\tcall.uni (retval0), malloc, (param0);\n";
    assert_eq!(external(text), ["malloc", "free"]);
    assert!(calls(text, "malloc") && !calls(text, "free"));
}
