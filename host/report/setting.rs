//! Whether failed allocations carry a report.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The environment variable.
const VARIABLE: &str = "WARPHEAP_OOM_REPORT";

const UNREAD: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

// ordering: relaxed; the setting publishes no other data.
static SETTING: AtomicU8 = AtomicU8::new(UNREAD);

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

/// Whether failed allocations carry a report.
pub(crate) fn reports_out_of_memory() -> bool {
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
