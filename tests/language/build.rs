//! Compiles the kernels to PTX, and to cubins where NVIDIA's assembler is installed.

use warpheap_build::{Builder, Error};

fn main() -> Result<(), Error> {
    println!("cargo::rerun-if-changed=build.rs");
    Builder::module("src/kernel_tests").embed_with_prefix("TESTS_", ["sm_70"])?;
    Builder::module("src/kernels").cubin("sm_80").cubin("sm_90").embed(["sm_70"])
}
