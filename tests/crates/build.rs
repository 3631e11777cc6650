//! Compiles each crate of the list to PTX of its own, and embeds all of them. If
//! `WARPHEAP_CRATES_CUBIN` names an architecture, such as `sm_90`, compiles them for it, too.

#[path = "src/list.rs"]
#[expect(dead_code, reason = "the build needs the names only")]
mod list;

#[path = "../suites/commit.rs"]
mod commit;

use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};
use warpheap_build::{Builder, Error};

/// The oldest GPU that runs the PTX.
const ARCH: &str = "sm_70";

/// The architecture of cubins.
const CUBIN: &str = "WARPHEAP_CRATES_CUBIN";

fn main() -> Result<(), Error> {
    for file in ["build.rs", "src/list.rs", "kernels/Cargo.toml"] {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    println!("cargo::rerun-if-env-changed={CUBIN}");
    let cubin_arch = env::var(CUBIN).ok().filter(|arch| !arch.is_empty());
    let (mut table, mut compiler) = ("&[\n".to_owned(), "none".to_owned());
    for entry in
        list::LIST.iter().filter(|entry| entry.is_small || env::var_os("CARGO_FEATURE_ALL").is_some())
    {
        if env::var_os("DOCS_RS").is_some() {
            continue;
        }
        let builder = Builder::new("kernels")
            .build_args(["--locked", "--no-default-features", "--features", entry.name])
            .arch(ARCH)
            .optimize_for_size(!entry.is_small);
        let cubin_arch = cubin_arch.iter().filter(|_| entry.assembles);
        let builder = cubin_arch.fold(builder, |builder, arch| builder.cubin(arch));
        let ptx = match builder.build() {
            Err(Error::NoCompiler(_)) => {
                println!("cargo::warning=built without kernels for GPUs: no compiler for them was found");
                break;
            }
            other => other?,
        };
        compiler = ptx.compiler.to_string();
        let cubin = match ptx.cubins.first() {
            Some(cubin) => format!("include_bytes!({:?})", cubin.path),
            None => "&[]".into(),
        };
        writeln!(table, "({:?}, include_str!({:?}), {cubin}),", entry.name, ptx.path).expect("texts grow");
    }
    println!("cargo::rustc-env=WARPHEAP_CRATES_COMPILER={compiler}");
    println!("cargo::rustc-env=WARPHEAP_CRATES_COMMIT={}", commit::commit());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("ptx.rs"), table + "]\n").expect("the output folder is writable");
    Ok(())
}
