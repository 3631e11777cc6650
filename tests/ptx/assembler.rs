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

/// What ptxas says about one kernel or one function by itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Part {
    pub name: String,
    /// Of a kernel; a function has those of the rules for calls.
    pub registers: Option<u32>,
    /// Bytes of stores and loads of spilled registers, and of those that a function saves for its callers.
    pub spill_bytes: u32,
}

const KERNEL: &str = "Compiling entry function '";
const PROPERTIES: &str = "Function properties for ";

/// Reads the report of `ptxas --verbose` about whole kernels. What belongs to a kernel begins with "Compiling entry
/// function", and in it what belongs to it or to one function with "Function properties".
///
/// # Panics
/// If two kernels' lines are mixed up.
pub fn usages(report: &str) -> Vec<Usage> {
    let mut usages: Vec<Usage> = Vec::new();
    // Whether the lines are about the kernel itself, which comes first.
    let (mut own, mut begins) = (false, false);
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once(KERNEL) {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            usages.push(Usage { kernel, ..Usage::default() });
            begins = true;
        }
        let Some(usage) = usages.last_mut() else { continue };
        if let Some((_, function)) = line.split_once(PROPERTIES) {
            own = function.trim() == usage.kernel;
            assert_eq!(own, std::mem::take(&mut begins), "{line:?} is among the lines of {}", usage.kernel);
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

/// Reads the report about kernels and functions compiled apart, each of which begins with "Function properties".
pub fn parts(report: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for line in report.lines() {
        if let Some((_, name)) = line.split_once(PROPERTIES) {
            parts.push(Part { name: name.trim().to_owned(), ..Part::default() });
        }
        let Some(part) = parts.last_mut() else { continue };
        let number = |unit: &str| number_before(line, unit);
        part.registers = part.registers.or(number(" registers"));
        part.spill_bytes +=
            number(" bytes spill stores").unwrap_or(0) + number(" bytes spill loads").unwrap_or(0);
    }
    parts
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

/// What ptxas says about the kernels of `ptx` for `arch`, each compiled with a copy of every function that it can reach, as
/// a driver does.
pub fn assemble(ptxas: &Path, ptx: &str, arch: &str) -> Vec<Usage> {
    // On all cores; the report is the same.
    usages(&run(ptxas, ptx, arch, &["--split-compile", "0"]))
}

/// What ptxas says about the kernels and functions of `ptx` for `arch`, each compiled once and to be linked later
/// (relocatable mode): a twentieth of the time.
pub fn assemble_apart(ptxas: &Path, ptx: &str, arch: &str) -> Vec<Part> {
    parts(&run(ptxas, ptx, arch, &["--compile-only"]))
}

/// The report.
fn run(ptxas: &Path, ptx: &str, arch: &str, how: &[&str]) -> String {
    let name = format!("{}-{arch}{}-{}.ptx", env!("CARGO_CRATE_NAME"), how[0], ptx.len());
    let input = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&input, ptx).expect("the target folder is writable");
    let gpu = format!("--gpu-name={arch}");
    let mut command = Command::new(ptxas);
    command.args(["--verbose", &gpu, "--output-file", "/dev/null"]).args(how).arg(&input);
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {}: {error}", ptxas.display()));
    let report = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "ptxas refuses the kernels for {arch}:\n{report}");
    report.into_owned()
}
