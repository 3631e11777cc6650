//! Compiles the kernel and the crates that it uses to PTX.

use warpheap_build::{Builder, Error};

fn main() -> Result<(), Error> {
    println!("cargo::rerun-if-changed=build.rs");
    // With at most 32 registers a thread, all warps of a multiprocessor are resident.
    Builder::new("kernels").max_registers(32).embed(["sm_70"])
}
