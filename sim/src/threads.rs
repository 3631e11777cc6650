//! Limits on the OS threads and the lane stacks of the library.
//!
//! Linux limits the mappings of a process. Beyond the limit a new thread aborts the process,
//! because it cannot map its signal stack, and so does an allocation of the program. So the library
//! takes only a share of the mappings, and fails with an error before the system does.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// OS threads: a stack and a signal stack, each with a guard page. Their share is a quarter.
static THREADS: Quota = Quota { name: "threads", each: 4, sixteenths: 4, used: AtomicUsize::new(0) };
/// Stacks of lanes, each with a guard page. Their share is nine sixteenths.
static STACKS: Quota = Quota { name: "lane stacks", each: 2, sixteenths: 9, used: AtomicUsize::new(0) };

/// The share of one kind of object.
struct Quota {
    name: &'static str,
    /// Mappings of an object.
    each: usize,
    /// The share of the process's mappings.
    sixteenths: usize,
    used: AtomicUsize,
}

/// An object that counts as used until this is dropped.
#[allow(missing_debug_implementations, reason = "only the library uses it")]
pub struct Slot(&'static Quota);

impl Quota {
    fn take(&'static self) -> io::Result<Slot> {
        let max = mappings() / 16 * self.sixteenths / self.each;
        // ordering: relaxed; a count.
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < max).then_some(n + 1)) {
            Ok(_) => Ok(Slot(self)),
            Err(used) => Err(io::Error::other(format!(
                "warpheap has {used} {} in this process, the most that the system's limit of mappings \
                 (vm.max_map_count) leaves room for",
                self.name
            ))),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // ordering: relaxed; a count.
        self.0.used.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The system's limit of mappings per process. Only Linux has one.
fn mappings() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
        text.trim().parse().unwrap_or(usize::MAX)
    })
}

/// The work of a new thread, which counts as used until the work has ended.
///
/// # Errors
/// The library has no thread left.
pub fn counted<T>(work: impl FnOnce() -> T + Send) -> io::Result<impl FnOnce() -> T + Send> {
    let slot = THREADS.take()?;
    Ok(move || {
        let _slot = slot;
        work()
    })
}

/// Room for the stack of a lane. Fails if the library has none left.
pub(crate) fn lane_stack() -> io::Result<Slot> {
    STACKS.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_never_exceeded_and_returns() {
        static FEW: Quota = Quota { name: "things", each: 1 << 10, sixteenths: 1, used: AtomicUsize::new(0) };
        let max = mappings() / 16 / (1 << 10);
        for _ in 0..2 {
            let slots: Vec<Slot> = (0..max).map(|_| FEW.take().unwrap()).collect();
            let error = FEW.take().err().expect("all are used").to_string();
            assert!(error.contains(&format!("{max} things")), "{error}");
            drop(slots);
        }
    }

    #[test]
    fn the_shares_leave_room_for_the_program() {
        assert!(THREADS.sixteenths + STACKS.sixteenths <= 13);
    }
}
