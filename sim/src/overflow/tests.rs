use crate::{Executor, Grid, Mode, SimtError};
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use warpheap_device::thread;

/// A recursion of `depth` calls, each with a frame of at least 512 B.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = [depth; 64];
    let below = if depth == 0 { 0 } else { recurse(depth - 1) };
    below + black_box(&frame)[0]
}

warpheap_device::kernel! {
    /// One thread calls itself `depth` times.
    ///
    /// # Safety
    /// The kernel accesses no memory.
    unsafe fn recursive(block: u32, of_block: u32, depth: u64) {
        if thread::block_idx_x() == block && thread::thread_idx_x() == of_block {
            black_box(recurse(depth));
        }
    }
}

warpheap_device::kernel! {
    /// Writes to an address without memory, which is no guard page.
    ///
    /// # Safety
    /// The caller expects the fault.
    unsafe fn wild() {
        // SAFETY: the caller expects the fault.
        unsafe { with_exposed_provenance_mut::<u8>(8).write_volatile(1) };
    }
}

const MODES: [Mode; 2] = [Mode::Parallel { workers: 2 }, Mode::Replay { seed: 3 }];
const GRID: Grid = Grid { blocks: [2, 1, 1], threads: [40, 1, 1] };

/// Runs the kernel whose thread (37, 0, 0) of block (1, 0, 0) recurses.
fn run(mode: Mode, stack_bytes: Option<usize>, depth: u64) -> Result<(), SimtError> {
    let executor = Executor::new(mode);
    let executor = stack_bytes.into_iter().fold(executor, Executor::with_stack_bytes);
    // SAFETY: the kernel accesses no memory.
    unsafe { executor.run::<recursive>(GRID, (1, 37, depth)) }.map(drop)
}

#[test]
fn larger_stacks_hold_deeper_recursions() {
    for mode in MODES {
        run(mode, Some(4 << 20), 3000).unwrap_or_else(|error| panic!("{mode:?}: {error}"));
        run(mode, Some(0), 10).unwrap_or_else(|error| panic!("{mode:?}: {error}"));
        let error = run(mode, Some(usize::MAX), 1).expect_err("no system has that many addresses");
        assert!(error.to_string().contains("smaller stacks (Executor::with_stack_bytes)"), "{error}");
    }
}

const CASE: &str = "WARPHEAP_TEST_OVERFLOW";

/// Runs a case of `child` in a process of its own.
fn child_of(case: &str) -> (Output, String) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--ignored", "--exact", "--nocapture", "overflow::tests::child"]);
    let output = program.env(CASE, case).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, printed)
}

#[test]
fn an_overflow_names_the_kernel_and_the_thread() {
    for case in ["parallel", "replay", "without a stack for signals", "larger"] {
        let (output, printed) = child_of(case);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{case}: {printed}");
        let size = if case == "larger" { "192 KiB" } else { "128 KiB" };
        let text = format!(
            "warpheap: stack overflow in kernel `recursive` on the CPU: thread (37, 0, 0) of block (1, 0, 0), \
             lane 5, has a stack of {size}; pass a larger size to Executor::with_stack_bytes, and the executor to \
             Device::cpu_with_executor\n"
        );
        assert!(printed.contains(&text), "{case}: {printed}");
    }
}

#[test]
fn other_faults_reach_the_handler_of_the_program() {
    for case in ["own handler", "own handler of one argument"] {
        let (output, printed) = child_of(case);
        assert_eq!(
            (output.status.code(), printed.contains("overflow")),
            (Some(7), false),
            "{case}: {printed}"
        );
    }
    let (output, printed) = child_of("thread");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{printed}");
    assert!(printed.contains("has overflowed its stack") && !printed.contains("warpheap:"), "{printed}");
    for case in ["wild", "wild with the default", "sent"] {
        let (output, printed) = child_of(case);
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{case}: {printed}");
    }
    let (output, printed) = child_of("sent and ignored");
    assert!(output.status.success(), "{printed}");
}

#[test]
#[ignore = "run by other tests, in a process of its own"]
fn child() {
    let overflow = |mode, bytes| run(mode, bytes, u64::MAX).expect("the process ends before");
    let case = std::env::var(CASE).unwrap();
    match case.as_str() {
        "parallel" => return overflow(MODES[0], None),
        "replay" => return overflow(MODES[1], None),
        "larger" => return overflow(MODES[0], Some((128 << 10) + 1)),
        "without a stack for signals" => {
            let none = libc::stack_t { ss_sp: null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            // SAFETY: no handler runs now.
            unsafe { libc::sigaltstack(&raw const none, null_mut()) };
            return overflow(MODES[1], None);
        }
        "own handler" => set_handler(ends as *const () as usize, libc::SA_SIGINFO | libc::SA_ONSTACK),
        "own handler of one argument" => set_handler(ends as *const () as usize, libc::SA_ONSTACK),
        "wild with the default" | "sent" => set_handler(libc::SIG_DFL, 0),
        "sent and ignored" => set_handler(libc::SIG_IGN, 0),
        _ => {}
    }
    run(MODES[0], None, 1).unwrap();
    match case.as_str() {
        "thread" => drop(std::thread::spawn(|| recurse(u64::MAX)).join()),
        "sent" | "sent and ignored" => {
            // SAFETY: no preconditions.
            unsafe { libc::raise(libc::SIGSEGV) };
        }
        _ => {
            // SAFETY: this process is to end by the fault.
            let _ = unsafe { Executor::new(MODES[1]).run::<wild>(GRID, ()) };
        }
    }
}

/// A handler of the program.
extern "C" fn ends(_signal: libc::c_int) {
    // SAFETY: no preconditions.
    unsafe { libc::_exit(7) };
}

fn set_handler(handler: libc::sighandler_t, flags: libc::c_int) {
    // SAFETY: all zeros are a valid action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    // SAFETY: `handler` may be called with any arguments, or is none.
    unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, null_mut()) };
}
