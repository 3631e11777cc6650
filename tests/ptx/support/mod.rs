//! Parses PTX: kernels, their instructions, and instructions that no kernel may contain.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod assembler;

use std::path::{Path, PathBuf};
use warpheap_build::{Builder, Error};

/// A kernel and its instructions.
#[derive(Debug)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    instructions: Vec<String>,
}

/// Instructions that identify a primitive. Arithmetic and plain loads and stores are left out.
const IDENTIFYING: [&str; 14] = [
    "atom.",
    "red.",
    "fence.",
    "membar.",
    "bar.",
    "barrier.",
    "vote.",
    "match.",
    "shfl.",
    "activemask.",
    "redux.",
    "nanosleep.",
    "trap",
    "exit",
];

/// Qualifiers of loads and stores that the compiler does not emit for plain accesses.
const QUALIFIERS: [&str; 6] = ["weak", "relaxed", "acquire", "release", "volatile", "mmio"];

impl Kernel {
    /// The identifying opcodes in order; for a `mov` from a special register, the register.
    pub fn opcodes(&self) -> Vec<String> {
        self.instructions.iter().filter_map(|instruction| identifying(instruction)).collect()
    }
}

fn identifying(instruction: &str) -> Option<String> {
    let opcode = opcode(instruction);
    let qualified = is_access(opcode) && opcode.split('.').any(|part| QUALIFIERS.contains(&part));
    if qualified || IDENTIFYING.iter().any(|start| opcode.starts_with(start)) {
        return Some(opcode.to_owned());
    }
    let source = instruction.strip_prefix("mov.")?.rsplit(", ").next()?;
    let numbered = source.trim_start_matches(['%', 'r', 'd', 'p', 's', 'f', 'h']);
    (source.starts_with('%') && !numbered.bytes().all(|b| b.is_ascii_digit())).then(|| source.to_owned())
}

fn is_access(opcode: &str) -> bool {
    opcode.starts_with("ld.") || opcode.starts_with("st.")
}

fn opcode(instruction: &str) -> &str {
    instruction.split_whitespace().next().unwrap_or_default()
}

/// The instructions of a line, without comments, braces, labels and guards.
fn instructions(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split(';').map(|part| {
        let part = part.trim_matches(|c: char| c.is_whitespace() || c == '{' || c == '}');
        let part = part
            .split_once(':')
            .filter(|(label, _)| label.starts_with('$'))
            .map_or(part, |(_, rest)| rest.trim());
        part.strip_prefix('@')
            .and_then(|guarded| guarded.split_once(' '))
            .map_or(part, |(_, rest)| rest.trim())
    })
}

/// The kernels of `text`.
pub fn kernels(text: &str) -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some(name) = warpheap_build::entries(line).next() {
            kernels.push(Kernel { name: name.into(), instructions: Vec::new() });
            inside = true;
        } else if line.starts_with('}') {
            inside = false;
        } else if let (true, Some(kernel)) = (inside, kernels.last_mut()) {
            kernel.instructions.extend(instructions(line).filter(|part| !part.is_empty()).map(String::from));
        }
    }
    kernels
}

/// Lists the forbidden instructions with their lines: `membar`, volatile accesses, and `atom` or
/// `red` without ordering or scope.
pub fn forbidden(text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    let all = lines.flat_map(|(number, line)| instructions(line).map(move |part| (number + 1, part)));
    all.filter(|(_, part)| is_forbidden(opcode(part)))
        .map(|(number, part)| format!("{number}: {part}"))
        .collect()
}

fn is_forbidden(opcode: &str) -> bool {
    let has = |one_of: &[&str]| opcode.split('.').any(|part| one_of.contains(&part));
    let ordered =
        has(&["relaxed", "acquire", "release", "acq_rel"]) && has(&["cta", "cluster", "gpu", "sys"]);
    let is_rmw = opcode.starts_with("atom.") || opcode.starts_with("red.");
    opcode.starts_with("membar") || (is_rmw && !ordered) || (is_access(opcode) && has(&["volatile"]))
}

/// The kernel modules that ship: that of the library and those of the harness.
pub const SHIPPED_KERNELS: [&str; 3] = ["host/kernels", "harness/kernels", "harness/suite_kernels"];

/// The PTX of the kernel crate or kernel module in `folder`. `None` if no compiler for kernels is
/// installed; panics then if `WARPHEAP_REQUIRE_COMPILER=1`.
pub fn built(folder: &str, arch: &str) -> Option<String> {
    built_with(folder, arch, |builder| builder)
}

/// The functions of the C library.
pub const DEVICE_LIBRARY: &str = "bindings/c/device/functions";

/// Builds the folder as [`built`] does, with more settings.
pub fn built_with(folder: &str, arch: &str, set: impl FnOnce(Builder) -> Builder) -> Option<String> {
    let kernels = root().join(folder);
    let builder = match kernels.join("Cargo.toml").is_file() {
        true => Builder::new(kernels).build_args(["--locked"]),
        false => Builder::module(kernels).device_crate(root().join("gpu"), ["panic-handler"]),
    };
    // Share one compiled core between all device builds.
    let target_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../warpheap-build/modules");
    let builder = builder.arch(arch).target_dir(target_dir).device_library(folder == DEVICE_LIBRARY);
    match set(builder).build() {
        Ok(ptx) => Some(std::fs::read_to_string(ptx.path).expect("the PTX was just written")),
        Err(error @ Error::NoCompiler(_)) => {
            assert!(!required("WARPHEAP_REQUIRE_COMPILER"), "{error}");
            eprintln!("skipped, there is no compiler for kernels on this machine");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The workspace root: the nearest folder at or above this crate's that contains `gpu`.
fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest.ancestors().find(|folder| folder.join("gpu").is_dir());
    root.expect("the tests are in the workspace").into()
}

/// Whether the environment variable `name` is 1.
pub fn required(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| value == "1")
}
