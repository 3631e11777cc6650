//! Compiles the kernels to PTX and notes what this build was made from, for `src/build_info.rs`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};
use warpheap_build::{Builder, Error};

const KERNELS: &str = "kernels";

/// As `src/build_info.rs` lists them.
const ARCHS: [&str; 2] = ["sm_70", "sm_80"];

/// All warps of a multiprocessor at once: the slow paths of the allocators would cost half of them.
const REGISTERS: u32 = 32;

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    note("WARPHEAP_COMMIT", &commit());
    note("WARPHEAP_TARGET", &env::var("TARGET").unwrap_or_default());
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    note("WARPHEAP_HOST_RUSTC", &output(Command::new(rustc).arg("-V")).unwrap_or_else(|| "unknown".into()));
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

/// What cargo puts into a package: the commit that it was made from.
const PACKAGED_COMMIT: &str = ".cargo_vcs_info.json";

/// The commit, with `-dirty` after it when a tracked file differs; `unknown` outside a git checkout and a package.
fn commit() -> String {
    if let Ok(info) = fs::read_to_string(PACKAGED_COMMIT) {
        let sha1 = info.split_once("\"sha1\": \"").and_then(|(_, rest)| rest.get(..12));
        let dirty = if info.contains("\"dirty\": true") { "-dirty" } else { "" };
        return sha1.map_or("unknown".into(), |sha1| format!("{sha1}{dirty}"));
    }
    if !Path::new("../Cargo.lock").is_file() {
        // A copy inside another project, whose commit is not this one's.
        return "unknown".into();
    }
    let git = |args: &[&str]| output(Command::new("git").arg("--no-optional-locks").args(args));
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".into() };
    let reference = git(&["symbolic-ref", "--quiet", "HEAD"]).unwrap_or_default();
    for name in ["HEAD", "packed-refs", &reference] {
        let path = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).is_file());
        path.iter().for_each(|path| println!("cargo::rerun-if-changed={path}"));
    }
    // In a checkout the other crates are beside this one.
    for source in ["host", "gpu", "builder", "harness", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed=../{source}");
    }
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]).unwrap_or_default();
    if changes.is_empty() { commit } else { format!("{commit}-dirty") }
}

/// What a program prints, if it runs and succeeds.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
