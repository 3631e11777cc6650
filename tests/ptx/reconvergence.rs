//! Warps reconverge in the code that the loader links (`docs/miscompiled.md`).
//!
//! In the machine code of a function that calls, loops, and computes in uniform registers, there
//! must be a reconvergence point (`BSSY`). Otherwise each part of the warp
//! increments the counter of all. Kernels are left out: they are never recursive, and a loop over a
//! kernel's parameter does not diverge, so it needs no such point.
//!
//! In modules with recursion, no function may have its stack pointer in a uniform register: threads
//! of a warp may be at different depths. The loader compiles such modules at level 1.
//!
//! NVIDIA's ptxas assembles the texts that the driver links, and its nvdisasm prints the code; both
//! are looked up as in `support/assembler.rs`.

use crate::support::assembler::{assemble_to, nvdisasm, ptxas};
use crate::support::{DEVICE_LIBRARY, SHIPPED_KERNELS, built};
use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use warpheap::driver::link_inputs;

/// The kernels with sorts and recursion.
const LANGUAGE: [&str; 2] = ["tests/language/src/kernels", "tests/language/src/kernel_tests"];

/// Instructions that compute in uniform registers. Moves are left out: they keep no count.
const UNIFORM: [&str; 10] =
    ["UIADD", "UISUB", "UIMAD", "ULEA", "ULOP", "USHF", "USEL", "UISETP", "UPOPC", "UFLO"];

/// The functions in the output of nvdisasm that call, branch backward and compute in uniform
/// registers, but have no reconvergence point.
fn diverged(code: &str) -> Vec<&str> {
    let functions = code.split("\n.text.").skip(1);
    let never_reconverges = |function: &&str| {
        let (mut labels, mut loops) = (HashSet::new(), false);
        let (mut calls, mut uniform, mut reconverges) = (false, false, false);
        for line in function.lines().map(str::trim) {
            if let Some(label) = line.strip_suffix(':') {
                labels.insert(label);
            }
            let Some((_, instruction)) = line.strip_prefix("/*").and_then(|line| line.split_once("*/"))
            else {
                continue;
            };
            let mut words = instruction.split_whitespace().filter(|word| !word.starts_with('@'));
            let opcode = words.next().unwrap_or_default();
            calls |= opcode.starts_with("CALL");
            reconverges |= opcode.starts_with("BSSY");
            uniform |= UNIFORM.iter().any(|name| opcode.starts_with(name));
            if opcode.starts_with("BRA") {
                let target = instruction.split_once("`(").and_then(|(_, rest)| rest.split(')').next());
                loops |= target.is_some_and(|target| labels.contains(target));
            }
        }
        calls && loops && uniform && !reconverges
    };
    functions.filter(never_reconverges).filter_map(|function| function.split(':').next()).collect()
}

/// The functions in the output of nvdisasm that move their stack pointer, `R1`, to a uniform
/// register.
fn with_uniform_stack(code: &str) -> Vec<&str> {
    let is_move = |line: &str| line.contains(" R2UR ") && (line.contains(", R1 ") || line.contains(", R1."));
    let functions = code.split("\n.text.").skip(1).filter(|function| function.lines().any(is_move));
    functions.filter_map(|function| function.split(':').next()).collect()
}

/// The levels of the loader: for modules with recursion, and for others.
const LEVELS: [u32; 2] = [1, 3];

/// The machine code of `ptx`, relocatable.
fn disassembled(ptxas: &Path, nvdisasm: &Path, ptx: &str, arch: &str, level: u32) -> String {
    let object = assemble_to(ptxas, ptx, arch, level);
    let output = Command::new(nvdisasm).arg(&object).output().expect("nvdisasm runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("nvdisasm prints text")
}

#[test]
fn warps_reconverge_in_all_code_that_is_linked() {
    let (Some(ptxas), Some(nvdisasm)) = (ptxas(), nvdisasm()) else { return };
    for folder in SHIPPED_KERNELS.into_iter().chain([DEVICE_LIBRARY]).chain(LANGUAGE) {
        let Some(ptx) = built(folder, "sm_70") else { return };
        let inputs = link_inputs(&ptx).expect("what rustc writes can be linked");
        assert_eq!(inputs.len() > 1, LANGUAGE.contains(&folder), "only {LANGUAGE:?} have recursion");
        for arch in ["sm_80", "sm_90", "sm_120"] {
            for input in &inputs {
                let is_recursive = inputs.len() > 1;
                let level = LEVELS[usize::from(!is_recursive)];
                let code = disassembled(&ptxas, &nvdisasm, input, arch, level);
                assert!(code.contains("BSSY") || is_recursive, "{folder}: no code that diverges");
                let kernels: Vec<_> = warpheap_build::entries(input).collect();
                let mut diverged = diverged(&code);
                diverged.retain(|name| !kernels.contains(name));
                assert!(diverged.is_empty(), "{folder} on {arch}: {diverged:#?}");
                let mut uniform = with_uniform_stack(&code);
                // A kernel starts at depth 0.
                uniform.retain(|name| !kernels.contains(name));
                assert!(!is_recursive || uniform.is_empty(), "{folder} on {arch}: {uniform:#?}");
            }
        }
        if LANGUAGE.contains(&folder) {
            let planted = disassembled(&ptxas, &nvdisasm, &ptx, "sm_90", 3);
            let found = diverged(&planted);
            assert!(found.iter().any(|name| name.contains("quicksort")), "not found: {found:#?}");
        }
    }
}

#[test]
fn a_stack_pointer_in_a_uniform_register_is_found() {
    let (Some(ptxas), Some(nvdisasm)) = (ptxas(), nvdisasm()) else { return };
    let Some(ptx) = built(LANGUAGE[1], "sm_70") else { return };
    let inputs = link_inputs(&ptx).expect("what rustc writes can be linked");
    let found = |level| {
        let code = disassembled(&ptxas, &nvdisasm, &inputs[0], "sm_90", level);
        with_uniform_stack(&code).iter().any(|name| name.contains("quicksort"))
    };
    assert_eq!(LEVELS.map(found), [false, true]);
}

#[test]
fn a_function_without_a_reconvergence_point_is_found() {
    let function = |name: &str, lines: &str| format!("\n.text.{name}:\n.L_x_1:\n{lines}");
    let (call, add) = ("/*0010*/ CALL.REL.NOINC R4 `(f) ;\n", "/*0020*/ UIADD3 UR4, UR4, 0x1, URZ ;\n");
    let (back, bssy) = ("/*0030*/ @!P0 BRA `(.L_x_1) ;\n", "/*0000*/ BSSY B0, `(.L_x_2) ;\n");
    let ahead = "/*0030*/ @P0 BRA `(.L_x_2) ;\n.L_x_2:\n";
    let code = [
        function("bad", &[call, add, back].concat()),
        function("reconverges", &[bssy, call, add, back].concat()),
        function("no_call", &[add, back].concat()),
        function("no_loop", &[call, add, ahead].concat()),
        function("no_counter", &[call, back].concat()),
    ];
    assert_eq!(diverged(&code.concat()), ["bad"]);
}
