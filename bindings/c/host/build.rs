//! Names the shared library for the dynamic linker.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libwarpheap.so.0");
    }
}
