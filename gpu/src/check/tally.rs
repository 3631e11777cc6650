//! Counters of what all threads of a run have done, spread over stripes to avoid contention.

use crate::kernel::DeviceSlice;
use crate::sync::AtomicU64;
use crate::thread;

/// Copies of the counters, so that warps do not contend for one address.
pub const STRIPES: u64 = 256;

/// Counters of a stripe: one cache line.
pub const COUNTERS: u64 = 8;

/// Counts of one thread. The host adds them up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks allocated.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Allocations that failed.
    pub failed_allocations: u64,
    /// Bytes of patterns written.
    pub bytes_written: u64,
    /// Bytes of patterns read.
    pub bytes_read: u64,
    /// Blocks freed by a different warp than the one that allocated them in the same phase.
    pub crossed_warps: u64,
    /// Those of these blocks that a different kernel freed.
    pub crossed_kernels: u64,
}

impl Counts {
    /// The sum over all stripes, as the host has copied them.
    pub fn sum(stripes: &[u64]) -> Counts {
        stripes.chunks_exact(COUNTERS as usize).fold(Counts::default(), |sum, stripe| Counts {
            allocations: sum.allocations + stripe[0],
            frees: sum.frees + stripe[1],
            failed_allocations: sum.failed_allocations + stripe[2],
            bytes_written: sum.bytes_written + stripe[3],
            bytes_read: sum.bytes_read + stripe[4],
            crossed_warps: sum.crossed_warps + stripe[5],
            crossed_kernels: sum.crossed_kernels + stripe[6],
        })
    }

    /// Adds the counts to this warp's stripe.
    pub(super) fn publish(self, stripes: DeviceSlice<u64>) {
        let first = u64::from(thread::warp_index()) % STRIPES * COUNTERS;
        if first + COUNTERS > stripes.len() {
            return;
        }
        let all = [
            self.allocations,
            self.frees,
            self.failed_allocations,
            self.bytes_written,
            self.bytes_read,
            self.crossed_warps,
            self.crossed_kernels,
        ];
        for (i, count) in all.into_iter().enumerate() {
            // SAFETY: `i < COUNTERS`, and the stripe has that many words in bounds.
            let word = unsafe { stripes.as_ptr().add(first as usize + i) };
            // SAFETY: live memory that all threads access through this type in this launch; an
            // atomic has its integer's layout.
            let word = unsafe { &*word.cast::<AtomicU64>() };
            if count > 0 {
                // Relaxed: the host reads after the kernel has ended.
                word.add_relaxed(count);
            }
        }
    }
}
