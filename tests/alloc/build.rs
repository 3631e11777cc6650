//! Compiles each group of tests to PTX of its own, and embeds all of them.

#[path = "../suites/commit.rs"]
mod commit;

use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};
use warpheap_alloc_transform::SUITES;
use warpheap_build::{Builder, Error};

/// The oldest GPU that runs the PTX.
const ARCH: &str = "sm_70";

fn main() -> Result<(), Error> {
    for file in ["build.rs", "kernels", "internal", "std", "transform", "excluded.txt"] {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    let (mut table, mut compiler) = ("&[\n".to_owned(), "none".to_owned());
    let groups =
        SUITES.iter().flat_map(|suite| suite.groups.iter().map(|(group, _)| (suite.kernels, *group)));
    for (kernels, group) in groups.filter(|_| env::var_os("DOCS_RS").is_none()) {
        let ptx = Builder::new(kernels).build_args(["--locked", "--features", group]).arch(ARCH);
        let ptx = match ptx.optimize_for_size(true).build() {
            Err(Error::NoCompiler(_)) => {
                println!("cargo::warning=built without kernels for GPUs: no compiler for them was found");
                break;
            }
            other => other?,
        };
        compiler = ptx.compiler.to_string();
        writeln!(table, "({group:?}, include_str!({:?})),", ptx.path).expect("texts grow");
    }
    println!("cargo::rustc-env=WARPHEAP_ALLOC_COMPILER={compiler}");
    println!("cargo::rustc-env=WARPHEAP_ALLOC_COMMIT={}", commit::commit());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("ptx.rs"), table + "]\n").expect("the output folder is writable");
    Ok(())
}
