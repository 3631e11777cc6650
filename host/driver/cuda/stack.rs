//! The stack of the threads of kernels.
//!
//! The driver gives a kernel the stack that it needs, if its assembler knows how much that is. A
//! kernel that can reach recursion or a call through a pointer has the limit of its context
//! instead, 1 KiB by default. If it needs more, its threads write beyond their stacks.
//!
//! So a module with such kernels raises the limit of a device's primary context when it is loaded,
//! unless the program has set it through the same device. A launch fails if the limit is less than
//! the frames of the kernel's functions.

use super::context::Context;
use super::sys::Status;
use crate::driver::backend::KernelAttributes;
use crate::driver::ptx::Stack;
use crate::error::{Bytes, Error, KernelFault, Result};
use crate::lock::lock;
use cudarc::driver::sys::{CUlimit, CUresult};
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
static LIMITS: Mutex<()> = Mutex::new(());

/// The stack of a context's kernels.
#[derive(Default)]
pub(super) struct StackLimit {
    /// Whether the program has set it.
    is_set: AtomicBool,
    /// The kernels that were launched and may need more than is known.
    open: Mutex<BTreeSet<&'static str>>,
}

impl Context {
    /// Sets the limit for the program.
    pub fn set_stack_bytes(&self, bytes: u64) -> Result<u64> {
        let _changes = lock(&LIMITS);
        let set = self.set_limit(CUlimit::CU_LIMIT_STACK_SIZE, bytes)?;
        // Relaxed: ordered by the lock.
        self.stack().is_set.store(true, Ordering::Relaxed);
        Ok(set)
    }

    /// Raises the limit for the kernels of a module, where this is allowed.
    pub fn raise_stack_limit(&self, kernels: impl Iterator<Item = Stack>) {
        let needed = kernels.filter(|stack| stack.is_open).map(|stack| stack.least).max();
        let Some(least) = needed else { return };
        let wanted = (least + ALLOWANCE).next_multiple_of(STEP);
        let _changes = lock(&LIMITS);
        // Relaxed: ordered by the lock.
        if !self.is_primary() || self.stack().is_set.load(Ordering::Relaxed) {
            return;
        }
        let raised = self.limit(CUlimit::CU_LIMIT_STACK_SIZE).and_then(|current| {
            let wanted = wanted.max(current);
            self.set_limit(CUlimit::CU_LIMIT_STACK_SIZE, wanted)
        });
        match raised {
            Ok(bytes) => tracing::info!(bytes, "threads of kernels have a stack of this size"),
            Err(error) => {
                tracing::warn!(%error, wanted, "the stack of the kernels' threads cannot be raised")
            }
        }
    }

    /// Fails if the threads of `kernel` cannot have the stack that they need at least.
    pub fn check_stack(&self, kernel: &'static str, attributes: KernelAttributes) -> Result<()> {
        if !attributes.has_open_stack {
            return Ok(());
        }
        let limit = self.limit(CUlimit::CU_LIMIT_STACK_SIZE)?;
        if limit >= attributes.stack_bytes {
            lock(&self.stack().open).insert(kernel);
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
    pub fn explain_stack(&self, error: Error) -> Error {
        explain(error, &lock(&self.stack().open))
    }
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
