//! Tells the build scripts of crates that depend on this one what their kernels are to be compiled
//! against: where the source of this crate and of `warpheap-machine` is, wherever cargo has it
//! from, and which of the features that kernels see are on.

const FEATURES: [&str; 5] = ["bytemuck", "debug", "delays", "panic-handler", "panic-message"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let value = |name: &str| std::env::var(name).ok();
    let variable = |feature: &str| format!("CARGO_FEATURE_{}", feature.replace('-', "_").to_uppercase());
    let features: Vec<_> =
        FEATURES.into_iter().filter(|feature| value(&variable(feature)).is_some()).collect();
    println!("cargo::metadata=source={}", value("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    println!(
        "cargo::metadata=machine={}",
        value("DEP_WARPHEAP_MACHINE_SOURCE").expect("its build script tells")
    );
    println!("cargo::metadata=features={}", features.join(","));
}
