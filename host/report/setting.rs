//! Whether failed allocations carry a report.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The environment variable.
const VARIABLE: &str = "WARPHEAP_OOM_REPORT";

const UNREAD: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

// ordering: relaxed; the setting publishes no other data.
static SETTING: AtomicU8 = AtomicU8::new(UNREAD);

thread_local! {
    /// Whether this thread is in a call of an allocator to its upstream.
    static IN_UPSTREAM: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether the error of a failed allocation of a host pool carries a report, which its message
/// then shows after the first line. Applies to the whole process, and to later failures.
///
/// Default: off, unless the environment variable `WARPHEAP_OOM_REPORT` is set and not `0`. So a
/// program that runs out of memory can be run again with reports, without being changed. The time
/// of a report is proportional to the number of live blocks: programs that allocate until an
/// allocation fails, on purpose and often, should leave it off.
pub fn report_out_of_memory(on: bool) {
    SETTING.store(if on { ON } else { OFF }, Relaxed);
}

/// What the error of a failed allocation shows besides its first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Explanation {
    /// Nothing: the allocator that called this one explains the failure, or does not fail.
    ByCaller,
    /// How to get a report.
    Hint,
    /// The report.
    Report,
}

/// What the error of an allocation that fails now shows.
pub(crate) fn explanation() -> Explanation {
    match (IN_UPSTREAM.get(), reports_out_of_memory()) {
        (true, _) => Explanation::ByCaller,
        (false, false) => Explanation::Hint,
        (false, true) => Explanation::Report,
    }
}

/// Calls an upstream. The caller explains its failure itself, or handles it. The upstream makes no
/// reports: their time would be wasted.
#[inline]
pub(crate) fn unexplained<T>(call: impl FnOnce() -> T) -> T {
    /// Restores the value from before, also if the upstream panics.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IN_UPSTREAM.set(self.0);
        }
    }
    let _restore = Restore(IN_UPSTREAM.replace(true));
    call()
}

/// Whether failed allocations carry a report.
fn reports_out_of_memory() -> bool {
    match SETTING.load(Relaxed) {
        UNREAD => {
            let on = std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty() && value != "0");
            // If another thread sets it now, its value stays.
            let set = SETTING.compare_exchange(UNREAD, if on { ON } else { OFF }, Relaxed, Relaxed);
            set.map_or_else(|other| other == ON, |_| on)
        }
        setting => setting == ON,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_to_an_upstream_are_not_explained() {
        let outside = explanation();
        assert_ne!(outside, Explanation::ByCaller);
        let nested = || unexplained(explanation);
        assert_eq!(unexplained(|| (nested(), explanation())), (Explanation::ByCaller, Explanation::ByCaller));
        std::panic::catch_unwind(|| unexplained(|| panic!("an upstream panics"))).unwrap_err();
        assert_eq!(explanation(), outside);
        let of_another = unexplained(|| std::thread::spawn(explanation).join().unwrap());
        assert_eq!(of_another, outside);
    }
}
