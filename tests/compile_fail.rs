//! Misuse that must not compile. `compile_fail/**/*.stderr` has the messages of the compiler, and
//! `compile_fail/correct` the same operations without the mistakes.
//!
//! The messages change with the compiler. To write them anew, after a review of the differences:
//! `TRYBUILD=overwrite cargo test --test compile_fail`.
//!
//! A program of its own: it sets an environment variable.
#![cfg(not(loom))]

#[path = "compile_fail/correct/handles.rs"]
mod correct_handles;

use std::process::Command;

/// The compiler whose messages the files contain.
const COMPILER: &str = "rustc 1.95.";

/// The version of the installed compiler, as in `rustc 1.95.0 (...)`.
fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-V").output().expect("rustc starts");
    String::from_utf8(output.stdout).expect("text").trim().into()
}

/// Whether the messages of the installed compiler can be compared. In `.ci/run`, which sets the
/// variable, they always are.
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
        // Builds the library without its kernels, which these tests do not need.
        // SAFETY: this program reads the environment only through the standard library, which locks
        // it.
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
