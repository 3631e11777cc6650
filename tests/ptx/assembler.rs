//! Runs NVIDIA's ptxas, and reads what it says about kernels.
//!
//! It is looked for in `WARPHEAP_PTXAS` and on the PATH. Without it there is nothing to read, unless
//! `WARPHEAP_REQUIRE_PTXAS=1`.

use super::required;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What ptxas says about one kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub kernel: String,
    /// Of the kernel with all that it calls.
    pub registers: u32,
    /// Of the kernel, and of each function that it can reach, added up.
    pub stack_bytes: u32,
    /// The same of stores and loads of spilled registers.
    pub spill_bytes: u32,
    /// Of the kernel's own code, without the functions.
    pub own_stack_bytes: u32,
    /// The same of stores and loads of spilled registers.
    pub own_spill_bytes: u32,
}

/// Reads the report of `ptxas --verbose`; what belongs to a kernel begins with "Compiling entry function", and in it what
/// belongs to it or to one function with "Function properties".
pub fn usages(report: &str) -> Vec<Usage> {
    let mut usages: Vec<Usage> = Vec::new();
    let mut own = false;
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            usages.push(Usage { kernel, ..Usage::default() });
        }
        let Some(usage) = usages.last_mut() else { continue };
        if let Some((_, function)) = line.split_once("Function properties for ") {
            own = function.trim() == usage.kernel;
        }
        let number = |unit: &str| number_before(line, unit).unwrap_or(0);
        let stack = number(" bytes stack frame");
        let spills = number(" bytes spill stores") + number(" bytes spill loads");
        usage.stack_bytes += stack;
        usage.spill_bytes += spills;
        usage.registers += number(" registers");
        if own {
            usage.own_stack_bytes += stack;
            usage.own_spill_bytes += spills;
        }
    }
    usages
}

fn number_before(line: &str, unit: &str) -> Option<u32> {
    let (before, _) = line.split_once(unit)?;
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

pub fn ptxas() -> Option<PathBuf> {
    let named = std::env::var_os("WARPHEAP_PTXAS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = named
        .or_else(|| std::env::split_paths(&path).map(|folder| folder.join("ptxas")).find(|p| p.is_file()));
    assert!(
        found.is_some() || !required("WARPHEAP_REQUIRE_PTXAS"),
        "no ptxas in WARPHEAP_PTXAS or on the PATH"
    );
    found
}

/// What ptxas says about the kernels of `ptx` for `arch`.
pub fn assemble(ptxas: &Path, ptx: &str, arch: &str) -> Vec<Usage> {
    let name = format!("{}-{arch}-{}.ptx", env!("CARGO_CRATE_NAME"), ptx.len());
    let input = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&input, ptx).expect("the target folder is writable");
    let gpu = format!("--gpu-name={arch}");
    let output =
        Command::new(ptxas).args(["--verbose", &gpu, "--output-file", "/dev/null"]).arg(&input).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {}: {error}", ptxas.display()));
    let report = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "ptxas refuses the kernels for {arch}:\n{report}");
    usages(&report)
}
