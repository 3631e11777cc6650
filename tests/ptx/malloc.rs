//! CUDA's `malloc` and `free` are declared by the kernels of the benchmark suites, for the driver
//! to link, and by no other module. Rust's collections allocate from them there.

use crate::support::{SHIPPED_KERNELS, built};

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
