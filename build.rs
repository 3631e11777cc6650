//! Compiles the kernels that the library itself launches to PTX, for `host/build_info.rs`.

use warpheap_build::{Builder, Error};

/// Allows full occupancy. Without the limit, the allocators' slow paths would halve it.
const REGISTERS: u32 = 32;

fn main() -> Result<(), Error> {
    println!("cargo::rerun-if-changed=build.rs");
    // The architectures that `host/build_info.rs` embeds.
    Builder::module("host/kernels").max_registers(REGISTERS).embed(["sm_70", "sm_80"])
}
