//! Misuse that the compiler refuses, and what it says then: `compile_fail/**/*.stderr`. What `correct` has does the same things right.
//!
//! What it says changes with the compiler. After a look at what has changed, `TRYBUILD=overwrite cargo test --test compile_fail` writes
//! it anew.
#![cfg(not(loom))]

#[path = "compile_fail/correct/handles.rs"]
mod correct_handles;

use std::process::Command;

/// Whose words the files have.
const COMPILER: &str = "rustc 1.95.";

/// What compiles here: `rustc 1.95.0 (...)`.
fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-V").output().expect("rustc starts");
    String::from_utf8(output.stdout).expect("text").trim().into()
}

/// Whether this compiler's words can be compared; in `.ci/run`, which sets the variable, they always are.
fn is_comparable() -> bool {
    let required = std::env::var("WARPHEAP_REQUIRE_COMPILER").is_ok_and(|value| value == "1");
    let compiler = compiler();
    let comparable = required || compiler.starts_with(COMPILER);
    if !comparable {
        eprintln!("not compared: the messages are those of {COMPILER}x, and this is {compiler}");
    }
    comparable
}

#[test]
fn misuse_does_not_compile() {
    if is_comparable() {
        // The library is built once more for these. Without its kernels, as for documentation: they need none.
        // SAFETY: all that reads the environment in this program does so through the standard library, which locks it.
        unsafe { std::env::set_var("DOCS_RS", "1") };
        let cases = trybuild::TestCases::new();
        cases.compile_fail("tests/compile_fail/handles/*.rs");
        cases.compile_fail("tests/compile_fail/device/*.rs");
    }
}

#[test]
fn correct_use_of_handles_compiles_and_runs() {
    correct_handles::main().unwrap();
}
