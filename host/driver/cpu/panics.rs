//! Panics of threads that ended alone, until a call that waits reports them.

use crate::driver::panics::panicked;
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::simt::Panic;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// The panics of a device since the last report: their kernels, and the first one with the number
/// of the others.
#[derive(Default)]
pub(super) struct Panics(Mutex<Option<(BTreeSet<&'static str>, Panic)>>);

impl Panics {
    /// The threads of `kernel` that panicked have ended. The grid has ended too if `panic` says so:
    /// then this returns the error of its stream.
    pub fn of_kernel(&self, kernel: &'static str, panic: Panic) -> Result<()> {
        if panic.ended_grid {
            return Err(panicked(&BTreeSet::from([kernel]), panic, "this stream runs nothing more"));
        }
        match &mut *lock(&self.0) {
            Some((kernels, first)) => {
                kernels.insert(kernel);
                first.absorb(&panic);
            }
            none => *none = Some((BTreeSet::from([kernel]), panic)),
        }
        Ok(())
    }

    /// Returns the panics since the last report as an error.
    pub fn report(&self) -> Result<()> {
        let pending = lock(&self.0).take();
        pending.map_or(Ok(()), |(kernels, panic)| Err::<(), Error>(panicked(&kernels, panic, "")))
    }
}
