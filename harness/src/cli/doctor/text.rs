//! Prints the findings: one line each, and advice under what is missing.

use super::super::console::Console;
use super::findings::{Cpu, Cuda, Findings, Gpu, Kernels};
use super::selftest::SelfTest;
use crate::report::human::{BinaryBytes, Count};
use warpheap_harness::build_info;

/// Prints all findings.
pub fn tell(findings: &Findings, console: &Console) {
    let (version, commit) = (env!("CARGO_PKG_VERSION"), build_info::COMMIT);
    line(console, true, "program", format!("warpheap {version}, commit {commit}, {}", build_info::TARGET));
    line(console, true, "compiler", build_info::HOST_COMPILER.to_owned());
    kernels(&findings.kernels, console);
    cuda(&findings.cuda, console);
    findings.devices.iter().for_each(|device| gpu(device, console));
    cpu(&findings.cpu, console);
    console.say(conclusion(findings));
}

fn line(console: &Console, good: bool, what: &str, text: String) {
    console.say(format_args!("{} {what:<9} {text}", if good { "[ok]" } else { "[--]" }));
}

fn advice(console: &Console, text: &str) {
    text.lines().for_each(|line| console.say(format_args!("               {line}")));
}

fn kernels(kernels: &Kernels, console: &Console) {
    let text = match kernels.present {
        true => format!(
            "{} for {} and later, compiled by {}",
            kernels.count,
            kernels.targets.join(", "),
            kernels.compiler
        ),
        false => "this program contains none for GPUs".into(),
    };
    line(console, kernels.present, "kernels", text);
    if kernels.present {
        advice(console, "recursive functions are linked through trampolines (docs/miscompiled.md)");
    }
    kernels.advice.iter().for_each(|text| advice(console, text));
}

fn cuda(cuda: &Cuda, console: &Console) {
    let text = match (cuda.found, &cuda.version) {
        (true, Some(version)) => format!("CUDA {version}, {} devices", cuda.count),
        (true, None) => format!("found, {} devices", cuda.count),
        (false, _) => "not found".into(),
    };
    line(console, cuda.found && cuda.count > 0, "driver", text);
    cuda.advice.iter().for_each(|text| advice(console, text));
}

fn gpu(gpu: &Gpu, console: &Console) {
    let name = format!("gpu {}", gpu.ordinal);
    let text = match &gpu.device {
        Some(device) => format!(
            "{}, compute capability {}, {} multiprocessors, {} of {} free",
            device.name,
            device.compute_capability.as_deref().unwrap_or("unknown"),
            device.multiprocessors,
            BinaryBytes(device.memory_free_bytes),
            BinaryBytes(device.memory_bytes),
        ),
        None => "cannot be opened".into(),
    };
    line(console, gpu.works(), &name, text);
    gpu.error.iter().for_each(|text| advice(console, text));
    for kernel in &gpu.kernels {
        let (registers, local) = (kernel.registers, kernel.local_bytes);
        advice(
            console,
            &format!("{:<22} {registers:>3} registers, {local} bytes of stack and spills", kernel.name),
        );
    }
    gpu.self_test.iter().for_each(|test| tell_self_test(test, console));
}

fn cpu(cpu: &Cpu, console: &Console) {
    line(console, cpu.self_test.passed, "cpu", cpu.description.clone());
    tell_self_test(&cpu.self_test, console);
}

fn tell_self_test(test: &SelfTest, console: &Console) {
    match &test.error {
        None => advice(
            console,
            &format!(
                "self-test passed: {} threads, with indices, ballots and an atomic sum",
                Count(test.threads.into())
            ),
        ),
        Some(error) => advice(console, &format!("self-test FAILED: {error}")),
    }
}

fn conclusion(findings: &Findings) -> String {
    let usable: Vec<_> = findings.devices.iter().filter(|device| device.works()).collect();
    match (usable.first(), findings.cpu.self_test.passed) {
        (Some(device), _) => format!(
            "\nKernels run on {} of {} GPUs. Next: `warpheap stress --device {}`.",
            usable.len(),
            findings.devices.len(),
            device.ordinal
        ),
        (None, true) => "\nKernels run on the CPU. Next: `warpheap stress`.".into(),
        (None, false) => "\nKernels do not run on this machine; see the advice above.".into(),
    }
}
