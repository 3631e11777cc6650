//! The error that reports panics of threads. See `warpheap_device::panic`.

use super::ptx::names_in_words;
use crate::error::{Error, KernelFault};
use crate::simt::Panic;
use std::collections::BTreeSet;

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
        let mut panic = Panic::default();
        panic.ended_grid = true;
        assert!(
            panicked(&BTreeSet::new(), panic, "end the process").to_string().ends_with("; end the process")
        );
    }
}
