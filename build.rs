//! Compiles the kernels that the library itself launches to PTX, for `host/build_info.rs`.

use warpheap_build::{Builder, Error};

/// Lets all warps of an SM be resident: the slow paths of the allocators would halve the occupancy.
const REGISTERS: u32 = 32;

fn main() -> Result<(), Error> {
    println!("cargo::rerun-if-changed=build.rs");
    // As `host/build_info.rs` lists them.
    Builder::module("host/kernels").max_registers(REGISTERS).embed(["sm_70", "sm_80"])
}
