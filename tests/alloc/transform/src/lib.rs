//! Makes kernels of the tests of Rust's `alloc` library: reads them from the sources that come with
//! the compiler, and writes a crate root, its modules and one kernel for each group of tests.
//!
//! The compiler itself lists the tests: it expands the test program, and each test has a descriptor
//! there. The sources are copied with small edits, which keep every line where it is:
//!
//! - `#[test]` and the attributes of tests are removed, tests and modules become public,
//! - tests that are not run are removed, unless a macro makes them,
//! - a static with interior mutability becomes one for each thread (`std::ThreadLocal`),
//! - `cfg(test)` is true, and `cfg(miri)` where only that makes the time bearable.
//!
//! `std` is the crate `warpheap-alloc-std` there.

mod edit;
mod expanded;
mod kernels;
mod source;
mod suites;

use std::path::PathBuf;
use std::{env, fs};

pub use expanded::{Reason, Test};
pub use source::Suite;
pub use suites::{INTERNAL, PUBLIC, SUITES};

/// The build script of a crate with kernels.
pub fn build_script(suite: &Suite) -> Result<(), Error> {
    const EXCLUDED: &str = "../excluded.txt";
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={EXCLUDED}");
    let variable = |name| env::var_os(name).map(PathBuf::from).ok_or(format!("cargo does not set {name}"));
    let excluded = fs::read_to_string(EXCLUDED)?;
    suite.write(&variable("RUSTC")?, &excluded, &variable("OUT_DIR")?)?;
    Ok(())
}

/// Why the sources cannot be transformed.
pub type Error = Box<dyn std::error::Error>;
