//! Compiles the device functions to relocatable PTX, for `lib.rs`.

use warpheap_build::{Builder, Error};

fn main() -> Result<(), Error> {
    println!("cargo::rerun-if-changed=build.rs");
    // Without line information: the library is copied to other machines.
    let library = Builder::module("functions").device_library(true).generate_line_info(false);
    // As `lib.rs` lists them.
    library.embed(["sm_70", "sm_80", "sm_90"])
}
