//! Compiles the kernels to PTX. Without a compiler for kernels, the programs run on the CPU only.

use warpheap_build::{Builder, Error};

fn main() -> Result<(), Error> {
    println!("cargo::rerun-if-changed=build.rs");
    // With at most 32 registers a thread, all warps of a multiprocessor are resident.
    Builder::module("src/kernels").max_registers(32).embed(["sm_70"])
}
