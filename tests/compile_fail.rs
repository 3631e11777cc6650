//! Misuse that the compiler refuses, and what it says then: `compile_fail/**/*.stderr`. `correct.rs` beside them does the same things
//! right, and compiles.
//!
//! What it says is rustc 1.95's. After a look at what has changed, `TRYBUILD=overwrite cargo test --test compile_fail` writes it anew.
#![cfg(not(loom))]

#[test]
fn handles() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile_fail/handles/correct.rs");
    cases.compile_fail("tests/compile_fail/handles/[!c]*.rs");
}
