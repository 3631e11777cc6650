//! Runs NVIDIA's ptxas and parses its report on kernels.
//!
//! ptxas is looked up in `WARPHEAP_PTXAS` and on the PATH, nvdisasm beside it and on the PATH.
//! Without them the tests have nothing to check and pass, unless `WARPHEAP_REQUIRE_PTXAS=1`.

use super::required;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Resources of one kernel, as reported by ptxas.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub kernel: String,
    /// Registers of the kernel, including all functions it calls.
    pub registers: u32,
    /// Sum over the kernel and every function it can reach.
    pub stack_bytes: u32,
    /// Bytes of stores and loads of spilled registers, summed over the kernel and every function it
    /// can reach.
    pub spill_bytes: u32,
    /// Stack of the kernel's own code, without the functions.
    pub own_stack_bytes: u32,
    /// Bytes of stores and loads of spilled registers in the kernel's own code.
    pub own_spill_bytes: u32,
}

/// Resources of one kernel or one function alone, as reported by ptxas.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Part {
    pub name: String,
    /// Registers of a kernel. `None` for a function: the calling convention fixes its registers.
    pub registers: Option<u32>,
    /// Bytes of stores and loads of spilled registers and of callee-saved registers.
    pub spill_bytes: u32,
}

const KERNEL: &str = "Compiling entry function '";
const PROPERTIES: &str = "Function properties for ";

/// Parses the report of `ptxas --verbose` on kernels compiled with all functions they reach. The
/// section of a kernel begins with "Compiling entry function"; within it, the part of the kernel or
/// of one function begins with "Function properties".
///
/// # Panics
/// If the lines of two kernels are interleaved.
pub fn usages(report: &str) -> Vec<Usage> {
    let mut usages: Vec<Usage> = Vec::new();
    // Whether the lines belong to the kernel itself, which comes first.
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

/// Parses the report on kernels and functions that were compiled separately. Each begins with
/// "Function properties".
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
    find("ptxas", std::env::var_os("WARPHEAP_PTXAS").map(PathBuf::from))
}

/// NVIDIA's disassembler.
pub fn nvdisasm() -> Option<PathBuf> {
    find("nvdisasm", ptxas().map(|ptxas| ptxas.with_file_name("nvdisasm")).filter(|path| path.is_file()))
}

/// `named`, or the program on the PATH.
fn find(program: &str, named: Option<PathBuf>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = || std::env::split_paths(&path).map(|folder| folder.join(program)).find(|it| it.is_file());
    let found = named.or_else(on_path);
    assert!(
        found.is_some() || !required("WARPHEAP_REQUIRE_PTXAS"),
        "no {program}: neither in WARPHEAP_PTXAS, nor on the PATH"
    );
    found
}

/// Resources of the kernels of `ptx` on `arch`, each compiled with a copy of every function it can
/// reach, as a driver does.
pub fn assemble(ptxas: &Path, ptx: &str, arch: &str) -> Vec<Usage> {
    // Uses all cores; the report is the same.
    usages(&run(ptxas, ptx, arch, &["--split-compile", "0"]))
}

/// Resources of the kernels and functions of `ptx` on `arch`, each compiled once to be linked later
/// (relocatable mode). Takes a twentieth of the time.
pub fn assemble_apart(ptxas: &Path, ptx: &str, arch: &str) -> Vec<Part> {
    parts(&run(ptxas, ptx, arch, &["--compile-only"]))
}

/// The relocatable object file of `ptx` for `arch`, optimised at `level`.
pub fn assemble_to(ptxas: &Path, ptx: &str, arch: &str, level: u32) -> PathBuf {
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{arch}-{level}-{}.o", ptx.len()));
    let level = format!("--opt-level={level}");
    run(ptxas, ptx, arch, &["--compile-only", &level, "--output-file", &object.to_string_lossy()]);
    object
}

/// Runs ptxas and returns its report. The output is dropped, unless `how` names a file for it.
fn run(ptxas: &Path, ptx: &str, arch: &str, how: &[&str]) -> String {
    let name = format!("{}-{arch}{}-{}.ptx", env!("CARGO_CRATE_NAME"), how[0], ptx.len());
    let input = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&input, ptx).expect("the target folder is writable");
    let mut command = Command::new(ptxas);
    command.args(["--verbose", &format!("--gpu-name={arch}")]).args(how).arg(&input);
    if !how.contains(&"--output-file") {
        command.args(["--output-file", "/dev/null"]);
    }
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {}: {error}", ptxas.display()));
    let report = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "ptxas rejects the kernels for {arch}:\n{report}");
    report.into_owned()
}
