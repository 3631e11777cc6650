//! Panics of threads: the error that reports them, and the setting of what they end. See
//! `warpheap_device::panic`.

use super::backend::{Range, Transfer};
use super::module::Module;
use super::ptx::names_in_words;
use crate::error::{Error, InvalidModule, KernelFault, Result};
use crate::simt::{OnPanic, Panic};
use std::collections::BTreeSet;
use std::mem::offset_of;
use warpheap_device::panic::{PanicSettings, SYMBOL};

/// Advice for panics that ended only their threads.
const LEAKS: &str = "these threads ended without freeing what they had allocated; `Heap::leaks` of a debug heap \
    lists it by allocation site";

/// The error for `panic` in one of `kernels`. `dead` says what is unusable if the grid has ended.
pub(super) fn panicked(kernels: &BTreeSet<&'static str>, panic: Panic, dead: &'static str) -> Error {
    let advice = if panic.ended_grid { dead } else { LEAKS };
    let names = kernels.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
    let kernels = match names.as_slice() {
        [] => "a kernel".into(),
        [kernel] => format!("kernel {kernel}"),
        several => format!("one of the kernels {}", names_in_words(several.iter().map(String::as_str))),
    };
    KernelFault::Panicked { kernels, panic: Box::new(panic), advice }.into()
}

impl Module {
    /// Sets what a panic of a thread in the module's kernels ends: the thread
    /// ([`OnPanic::EndThread`], the default), or the grid. Waits for the device; launches of the
    /// module wait until the call is done.
    ///
    /// A panic that ends only threads is returned once, as
    /// [`KernelFault::Panicked`](crate::error::KernelFault::Panicked), by the first of these calls
    /// after it, whatever the stream: [`Device::synchronize`](crate::Device::synchronize),
    /// `synchronize` and `is_done` of streams and events, and copies to the host that wait.
    ///
    /// # Errors
    /// [`InvalidModule`](crate::Error::InvalidModule) if the kernels were built without the feature
    /// `panic-handler` of `warpheap-device`, or an earlier failure of the device.
    pub fn set_on_panic(&self, on_panic: OnPanic) -> Result<()> {
        let missing = InvalidModule::NoPanicHandler { symbol: SYMBOL };
        let place = self.code().variable(SYMBOL, size_of::<PanicSettings>() as u64, missing)?;
        self.while_idle(|_| {
            self.code().set_on_panic(on_panic);
            let Some(Range { address, .. }) = place else { return Ok(()) };
            let ends_grid = u64::from(on_panic == OnPanic::EndGrid);
            let write = Transfer::Write {
                to: address + offset_of!(PanicSettings, ends_grid) as u64,
                from: (&raw const ends_grid).cast(),
                bytes: size_of_val(&ends_grid),
            };
            // SAFETY: the word is inside the variable, whose size was checked; no kernel of the
            // module runs.
            unsafe { self.device().driver().transfer(write) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_that_may_have_panicked_are_named() {
        for (names, text) in [
            (&[][..], "a kernel panicked at "),
            (&["one"], "kernel `one` panicked at "),
            (&["one", "two"], "one of the kernels `one`, `two` panicked at "),
        ] {
            let error = panicked(&names.iter().copied().collect(), Panic::default(), "end the process");
            assert!(error.to_string().starts_with(text) && error.to_string().contains("leaks"), "{error}");
        }
        let panic = Panic { ended_grid: true, ..Panic::default() };
        assert!(
            panicked(&BTreeSet::new(), panic, "end the process").to_string().ends_with("; end the process")
        );
    }
}
