//! Fault injection: calls that fail on purpose, to test code above an allocator.

use crate::driver::{Device, Stream};
use crate::error::{Error, Result};
use crate::host_pools::allocator::DeviceAllocator;
use crate::lock::lock;
use crate::report::MemoryReport;
use crate::usage::Usage;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::alloc::Layout;
use std::num::NonZeroU64;
use std::sync::Mutex;
use warpheap_device::kernel::DevicePtr;

/// Which calls fail. Allocations and frees are counted together, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failures {
    /// None; calls are only counted.
    Never,
    /// The call with this number.
    Nth(u64),
    /// Each call with a probability of one in this many. The second field is the seed: the same
    /// seed makes the same calls fail.
    OneIn(NonZeroU64, u64),
}

/// Makes some calls fail with [`Error::FailureInjected`], without forwarding them.
#[derive(Debug)]
pub struct FailureInjected<A> {
    upstream: A,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    calls: u64,
    failed: u64,
    which: Failures,
    rng: Pcg64Mcg,
}

impl<A: DeviceAllocator> FailureInjected<A> {
    /// Wraps `upstream`, whose calls fail according to `which`.
    pub fn new(upstream: A, which: Failures) -> FailureInjected<A> {
        let seed = match which {
            Failures::OneIn(_, seed) => seed,
            Failures::Never | Failures::Nth(_) => 0,
        };
        let state = State { calls: 0, failed: 0, which, rng: Pcg64Mcg::seed_from_u64(seed) };
        FailureInjected { upstream, state: Mutex::new(state) }
    }

    /// Number of calls, including failed ones.
    pub fn calls(&self) -> u64 {
        lock(&self.state).calls
    }

    /// Number of calls that failed on purpose.
    pub fn failed(&self) -> u64 {
        lock(&self.state).failed
    }

    /// The wrapped allocator.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// Counts a call, and returns an error if it is to fail.
    fn call(&self) -> Result<()> {
        let mut state = lock(&self.state);
        state.calls += 1;
        let call = state.calls;
        let fails = match state.which {
            Failures::Never => false,
            Failures::Nth(nth) => call == nth,
            Failures::OneIn(chance, _) => state.rng.next_u64().is_multiple_of(chance.get()),
        };
        state.failed += u64::from(fails);
        if fails { Err(Error::FailureInjected { call }) } else { Ok(()) }
    }
}

// SAFETY: A1 to A3 hold for the upstream; a free that fails here is not forwarded.
unsafe impl<A: DeviceAllocator> DeviceAllocator for FailureInjected<A> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        self.call()?;
        self.upstream.allocate(layout, stream)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        self.call()?;
        // SAFETY: the caller's promises P1 and P2.
        unsafe { self.upstream.deallocate(ptr, layout, stream) }
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }

    fn report(&self) -> MemoryReport {
        self.upstream.report()
    }
}
