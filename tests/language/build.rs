//! Compiles the kernels to PTX.

use warpheap_build::{Builder, Error};

fn main() -> Result<(), Error> {
    println!("cargo::rerun-if-changed=build.rs");
    Builder::module("src/kernel_tests").embed_with_prefix("TESTS_", ["sm_70"])?;
    Builder::module("src/kernels").embed(["sm_70"])
}
