//! Compiles the kernels to PTX.

use warpheap_build::{Builder, Error};

fn main() -> Result<(), Error> {
    println!("cargo::rerun-if-changed=build.rs");
    Builder::module("src/kernels").embed(["sm_70"])
}
