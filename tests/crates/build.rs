//! Compiles each crate of the list to PTX of its own, and embeds all of them.

#[path = "src/list.rs"]
#[expect(dead_code, reason = "the build needs the names only")]
mod list;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};
use warpheap_build::{Builder, Error};

/// The oldest GPU that runs the PTX.
const ARCH: &str = "sm_70";

/// The commit of the sources, or nothing outside a checkout.
fn commit() -> String {
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let output = output.ok().filter(|output| output.status.success());
    output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().into())
}

fn main() -> Result<(), Error> {
    for file in ["build.rs", "src/list.rs", "kernels/Cargo.toml"] {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    let (mut table, mut compiler) = ("&[\n".to_owned(), "none".to_owned());
    for entry in
        list::LIST.iter().filter(|entry| entry.is_small || env::var_os("CARGO_FEATURE_ALL").is_some())
    {
        let ptx = match env::var_os("DOCS_RS") {
            Some(_) => continue,
            None => Builder::new("kernels")
                .build_args(["--locked", "--no-default-features", "--features", entry.name])
                .arch(ARCH)
                .optimize_for_size(!entry.is_small)
                .build(),
        };
        let ptx = match ptx {
            Err(Error::NoCompiler(_)) => {
                println!("cargo::warning=built without kernels for GPUs: no compiler for them was found");
                break;
            }
            other => other?,
        };
        compiler = ptx.compiler.to_string();
        writeln!(table, "({:?}, include_str!({:?})),", entry.name, ptx.path).expect("texts grow");
    }
    println!("cargo::rustc-env=WARPHEAP_CRATES_COMPILER={compiler}");
    println!("cargo::rustc-env=WARPHEAP_CRATES_COMMIT={}", commit());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("ptx.rs"), table + "]\n").expect("the output folder is writable");
    Ok(())
}
