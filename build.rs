//! Compiles the kernels that the library itself launches to PTX, for `host/build_info.rs`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};
use warpheap_build::{Builder, Error};

const KERNELS: &str = "host/kernels";

/// As `host/build_info.rs` lists them.
const ARCHS: [&str; 2] = ["sm_70", "sm_80"];

/// All warps of a multiprocessor at once: the slow paths of the allocators would cost half of them.
const REGISTERS: u32 = 32;

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    match kernels() {
        Ok(kernels) => {
            kernels.note();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The PTX, or why there is none.
enum Kernels {
    Built { ptx: Vec<PathBuf>, compiler: String },
    Missing(String),
}

fn kernels() -> Result<Kernels, Error> {
    if env::var_os("CARGO_CFG_LOOM").is_some() || env::var_os("DOCS_RS").is_some() {
        return Ok(Kernels::Missing(
            "this build, for a model checker or for documentation, has no kernels".into(),
        ));
    }
    match Builder::module(KERNELS).max_registers(REGISTERS).build_archs(ARCHS) {
        Ok(ptx) => {
            let compiler = ptx[0].compiler.version.clone();
            Ok(Kernels::Built { ptx: ptx.into_iter().map(|ptx| ptx.path).collect(), compiler })
        }
        Err(error @ Error::NoCompiler(_)) => {
            println!("cargo::warning=no kernels for the GPU in this build: no compiler for them was found");
            println!("cargo::warning=the CPU side is complete; `warpheap doctor` says what to install");
            Ok(Kernels::Missing(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

impl Kernels {
    fn note(&self) {
        let (ptx, compiler, missing) = match self {
            Kernels::Built { ptx, compiler } => (ptx.clone(), compiler.as_str(), ""),
            Kernels::Missing(why) => (vec![write("no-kernels.ptx", ""); ARCHS.len()], "none", why.as_str()),
        };
        for (arch, ptx) in ARCHS.iter().zip(&ptx) {
            note(&format!("WARPHEAP_PTX_{}", arch.to_uppercase()), &ptx.to_string_lossy());
        }
        note("WARPHEAP_PTX_MISSING", &write("why-no-kernels.txt", missing).to_string_lossy());
        note("WARPHEAP_DEVICE_RUSTC", compiler);
    }
}

fn note(name: &str, value: &str) {
    println!("cargo::rustc-env={name}={value}");
}

fn write(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(name);
    fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    path
}
