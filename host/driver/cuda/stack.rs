//! The stack of the threads of kernels.
//!
//! The driver gives a kernel the stack that it needs, if its assembler knows how much that is. A
//! kernel that can reach recursion or a call through a pointer has the limit of its context
//! instead, 1 KiB by default. If it needs more, its threads write beyond their stacks.
//!
//! So a module with such kernels raises the limit of a device's primary context when it is loaded,
//! unless the program has set it through the same device. A launch fails if the limit is less than
//! the frames of the kernel's functions.

use super::sys::Status;
use crate::driver::backend::KernelAttributes;
use crate::driver::ptx::Stack;
use crate::error::{Bytes, Error, KernelFault, Result};
use crate::lock::lock;
use cudarc::driver::sys::CUresult;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes for recursion and for calls through pointers, above what their functions need once.
const ALLOWANCE: u64 = 16 << 10;

/// The limit rises in steps of this many bytes.
const STEP: u64 = 1 << 10;

/// The faults of threads that write beyond their stacks.
const SYMPTOMS: [Status; 6] = [
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as Status,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR as Status,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION as Status,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS as Status,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE as Status,
    CUresult::CUDA_ERROR_INVALID_PC as Status,
];

/// Serialises changes of limits: several contexts here may be one of the driver's.
pub(super) static CHANGES: Mutex<()> = Mutex::new(());

/// The stack of a context's kernels. The limit itself is with the driver.
#[derive(Default)]
pub(super) struct StackLimit {
    /// Whether the program has set it.
    is_set: AtomicBool,
    /// The kernels that were launched and may need more than is known.
    open: Mutex<BTreeSet<&'static str>>,
}

impl StackLimit {
    /// The program has set the limit. Called under [`CHANGES`].
    pub fn note_set(&self) {
        // Relaxed: ordered by the lock.
        self.is_set.store(true, Ordering::Relaxed);
    }

    /// Whether the program has set the limit. Called under [`CHANGES`].
    pub fn is_set(&self) -> bool {
        // Relaxed: ordered by the lock.
        self.is_set.load(Ordering::Relaxed)
    }

    /// Fails if `limit` is less than the threads of `kernel` need at least.
    pub fn check(&self, kernel: &'static str, attributes: KernelAttributes, limit: u64) -> Result<()> {
        if limit >= attributes.stack_bytes {
            lock(&self.open).insert(kernel);
            return Ok(());
        }
        Err(Error::InvalidLaunch {
            kernel,
            requested: format!(
                "its functions need at least {} of stack for each thread",
                Bytes(attributes.stack_bytes)
            ),
            limit: format!("a thread has {}", Bytes(limit)),
            advice: "raise it with Device::set_stack_bytes, or with cuCtxSetLimit in a context of your own",
        })
    }

    /// Adds to a fault that a stack may have been too small, if it may.
    pub fn explain(&self, error: Error) -> Error {
        explain(error, &lock(&self.open))
    }
}

/// The limit that the kernels of a module need. `None` if the driver knows how much each needs.
pub(super) fn wanted_limit(kernels: impl Iterator<Item = Stack>) -> Option<u64> {
    let least = kernels.filter(|stack| stack.is_open).map(|stack| stack.least).max()?;
    Some((least + ALLOWANCE).next_multiple_of(STEP))
}

fn explain(error: Error, open: &BTreeSet<&str>) -> Error {
    const SHOWN: usize = 3;
    match error {
        Error::KernelFault(KernelFault::Cuda { call, code, name, detail })
            if !open.is_empty() && SYMPTOMS.contains(&code) =>
        {
            let kernels: Vec<_> = open.iter().take(SHOWN).map(|kernel| format!("`{kernel}`")).collect();
            let others = if open.len() > SHOWN { " and others" } else { "" };
            let detail = format!(
                "{detail}; or the stack of a thread is too small for {}{others}, with recursion or calls through \
                 pointers: raise it with Device::set_stack_bytes",
                kernels.join(", ")
            );
            KernelFault::Cuda { call, code, name, detail }.into()
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_kernels_whose_stack_may_be_too_small() {
        let message = |code, kernels: &[&'static str]| {
            let (name, detail) = ("NAME".into(), "detail".into());
            let fault = KernelFault::Cuda { call: "cuX", code, name, detail }.into();
            explain(fault, &kernels.iter().copied().collect()).to_string()
        };
        let illegal = SYMPTOMS[0];
        let named = message(illegal, &["sort", "parse"]);
        assert!(
            named.contains("detail; or the stack of a thread is too small for `parse`, `sort`, "),
            "{named}"
        );
        assert!(message(illegal, &["a", "b", "c", "d"]).contains("`a`, `b`, `c` and others"));
        let trapped = CUresult::CUDA_ERROR_LAUNCH_FAILED as Status;
        for (code, kernels) in [(illegal, &[][..]), (trapped, &["sort"])] {
            assert!(!message(code, kernels).contains("stack"));
        }
    }
}
