//! Self-test of the primitives: coordinates, a collective, an atomic.

use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_device::sync::AtomicU64;
use warpheap_device::units::LaneMask;
use warpheap_device::{kernel, thread, warp};

/// Whether thread `i` votes yes in [`self_test`].
pub const fn votes(i: u32) -> bool {
    i.is_multiple_of(3)
}

kernel! {
    /// Thread `i` stores `i` and the ballot of [`votes`] over its warp, and adds `i` to `sum`.
    ///
    /// # Safety
    /// The arrays and `sum` are live and nothing else accesses them; blocks consist of full warps.
    pub unsafe fn self_test(indices: DeviceSlice<u32>, ballots: DeviceSlice<u32>, sum: DevicePtr<u64>) {
        let i = thread::index_1d();
        // SAFETY: each thread writes its own word.
        unsafe { indices.set(i.into(), i) };
        // SAFETY: the warps are full, and every lane executes this call.
        let yes = unsafe { warp::warp_vote_ballot(LaneMask::ALL, votes(i)) };
        // SAFETY: each thread writes its own word.
        unsafe { ballots.set(i.into(), yes.0) };
        // SAFETY: the word is live, and an atomic has the layout of its integer.
        let sum = unsafe { &*sum.0.cast::<AtomicU64>() };
        // Relaxed: the host reads after the kernel has ended.
        sum.add_relaxed(i.into());
    }
}
