//! Compiles the kernels to PTX and notes what this build was made from, for `src/build_info.rs`.

use std::path::Path;
use std::process::Command;
use std::{env, fs};
use warpheap_build::{Builder, Error};

/// Lets all warps of an SM be resident: the slow paths of the allocators would halve the occupancy.
const REGISTERS: u32 = 32;

fn main() -> Result<(), Error> {
    println!("cargo::rerun-if-changed=build.rs");
    note("WARPHEAP_COMMIT", &commit());
    note("WARPHEAP_TARGET", &env::var("TARGET").unwrap_or_default());
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    note("WARPHEAP_HOST_RUSTC", &output(Command::new(rustc).arg("-V")).unwrap_or_else(|| "unknown".into()));
    // As `src/build_info.rs` lists them.
    let archs = ["sm_70", "sm_80"];
    Builder::module("kernels").max_registers(REGISTERS).embed(archs)?;
    Builder::module("suite_kernels").max_registers(REGISTERS).embed_with_prefix("WARPHEAP_SUITE_", archs)
}

fn note(name: &str, value: &str) {
    println!("cargo::rustc-env={name}={value}");
}

/// What cargo puts into a package: the commit that it was made from.
const PACKAGED_COMMIT: &str = ".cargo_vcs_info.json";

/// The commit, with `-dirty` after it when a tracked file differs; `unknown` outside a git checkout
/// and a package.
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
    for source in ["host", "gpu", "machine", "sim", "builder", "ptx", "harness", "Cargo.toml", "Cargo.lock"] {
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
