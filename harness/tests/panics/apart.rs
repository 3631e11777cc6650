//! Panics in processes of their own: what they print, and panics that end the grid.

use crate::support::{Fixture, PANICS, THREADS, cpu, gpus, panic_of};
use std::process::{Command, Output};
use warpheap::Backend;
use warpheap::error::Error;
use warpheap::simt::{Mode, OnPanic};

/// Runs an ignored test of this file in a process of its own, which asks for backtraces.
fn run_apart(name: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["--ignored", "--exact", "--nocapture", "--test-threads=1"]).arg(format!("apart::{name}"));
    let output = command.env("RUST_BACKTRACE", "1").output().expect("this program runs again");
    assert!(output.status.success(), "{output:?}");
    output
}

#[test]
fn panics_of_lanes_print_nothing() {
    let printed = String::from_utf8(run_apart("child_panics_on_the_cpu").stderr).unwrap();
    assert_eq!(printed.matches("panicked at").count(), 1, "only that of the host: {printed}");
    assert!(printed.contains("a panic of the host"), "{printed}");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_panics_on_the_cpu() {
    for mode in [Mode::Parallel { workers: 2 }, Mode::Replay { seed: 0 }] {
        let mut fixture = cpu(mode);
        fixture.index(THREADS - PANICS);
        fixture.stream.synchronize().unwrap_err();
    }
    // The hook of the program is still called for its own panics.
    std::panic::catch_unwind(|| panic!("a panic of the host")).unwrap_err();
}

#[test]
fn a_panic_can_end_the_grid() {
    run_apart("child_ends_the_grid_on_the_cpu");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_ends_the_grid_on_the_cpu() {
    for is_pending in [false, true] {
        (0..4).for_each(|seed| ends_the_grid(cpu(Mode::Replay { seed }), is_pending));
        ends_the_grid(cpu(Mode::Parallel { workers: 2 }), is_pending);
    }
}

/// On a GPU that makes the context of the process unusable.
#[test]
fn a_panic_can_end_the_grid_on_a_gpu() {
    if gpus().next().is_some() {
        run_apart("child_ends_the_grid_on_a_gpu");
        run_apart("child_ends_the_grid_on_a_gpu_with_a_panic_pending");
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_ends_the_grid_on_a_gpu() {
    gpus().take(1).for_each(|fixture| ends_the_grid(fixture, false));
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_ends_the_grid_on_a_gpu_with_a_panic_pending() {
    gpus().take(1).for_each(|fixture| ends_the_grid(fixture, true));
}

/// Each later call returns the panic too. On the CPU, each one of that stream. If `is_pending`,
/// threads have panicked alone before, which was not reported: on a GPU, the description is that of
/// one of them.
fn ends_the_grid(mut fixture: Fixture, is_pending: bool) {
    if is_pending {
        fixture.index(THREADS - 1);
    }
    fixture.module.set_on_panic(OnPanic::EndGrid).unwrap();
    if !is_pending {
        fixture.index(THREADS);
        fixture.stream.synchronize().unwrap();
    }
    fixture.index(THREADS - PANICS);
    for _ in 0..2 {
        let error: Error = fixture.stream.synchronize().unwrap_err();
        let panic = panic_of(&error);
        assert!(error.is_fatal() && panic.others < u64::from(PANICS) + u64::from(is_pending), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("kernel `demo_index` panicked at "), "{text}");
        let advice = match fixture.device.backend() {
            Backend::Cpu => "; this stream runs nothing more",
            _ => "so end the process",
        };
        assert!(text.ends_with(advice), "{text}");
    }
    fixture.module.set_on_panic(OnPanic::EndThread).unwrap_err();
}
