//! Tells the build script of `warpheap-device` where the source is, wherever cargo has it from.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo::metadata=source={folder}");
}
