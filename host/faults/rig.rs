//! The blocks of a pool under test, and the checks on each call.

use super::ledger::Ledger;
use super::subjects::Pool;
use crate::driver::fault_injection::{Call, Run, is_injected};
use crate::driver::{Range, Stream};
use crate::error::{Error, OutOfMemory, Result};
use crate::host_pools::address_of;
use std::alloc::Layout;
use warpheap_device::kernel::DevicePtr;

struct Block {
    ptr: DevicePtr<u8>,
    layout: Layout,
    /// Work on this stream may use the block.
    alloc_stream: Stream,
}

/// The blocks that a scenario has allocated and freed.
pub(super) struct Rig<'a> {
    pub run: &'a Run,
    live: Vec<Block>,
    ledger: Ledger,
    /// Driver calls of the scenario itself.
    pub own_calls: Vec<Call>,
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 256).unwrap()
}

impl<'a> Rig<'a> {
    pub fn new(run: &'a Run) -> Rig<'a> {
        Rig { run, live: Vec::new(), ledger: Ledger::default(), own_calls: Vec::new() }
    }

    /// Makes a driver call that is not the pool's.
    pub fn attempt_own<T>(&mut self, call: impl FnMut() -> Result<T>) -> Option<T> {
        let before = self.run.faults.calls();
        let done = self.run.attempt(call);
        self.own_calls.extend_from_slice(&self.run.faults.all_calls()[before..]);
        done
    }

    /// Checks the pool's invariants, and that launches may use every live block.
    fn check(&self, pool: &dyn Pool) {
        pool.check();
        for Block { ptr, layout, .. } in &self.live {
            let range = Range { address: address_of(*ptr), bytes: layout.size() as u64 };
            assert!(self.run.device.registry().holds(range), "{}: {range:?} is not registered", self.run);
        }
    }

    /// Allocates a block. Returns false if the pool is out of memory.
    pub fn alloc(&mut self, pool: &dyn Pool, size: usize, stream: &Stream) -> bool {
        let is_full = |error: &Error| {
            matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. } | OutOfMemory::Device { .. }))
                && !is_injected(error)
        };
        let of = layout(size);
        let taken = self.run.attempt(|| match pool.allocate(of, stream) {
            Ok(ptr) => Ok(Some(ptr)),
            Err(error) if is_full(&error) => Ok(None),
            Err(error) => Err(error),
        });
        let taken = taken.flatten();
        if let Some(ptr) = taken {
            self.enlist(Block { ptr, layout: of, alloc_stream: stream.clone() });
        }
        self.check(pool);
        taken.is_some()
    }

    pub fn must_alloc(&mut self, pool: &dyn Pool, size: usize, stream: &Stream) {
        let run = self.run;
        assert!(self.alloc(pool, size, stream), "{run}: no room for {size} B: {:?}", pool.usage());
    }

    /// Checks that the block overlaps no other, and that its stream is ordered after earlier work
    /// on its bytes.
    fn enlist(&mut self, block: Block) {
        let run = self.run;
        let (start, bytes) = (address_of(block.ptr), block.layout.size() as u64);
        assert!(start.is_multiple_of(block.layout.align() as u64));
        let allocated = self.ledger.allocated(&run.faults, (start, bytes), &block.alloc_stream);
        allocated.unwrap_or_else(|why| panic!("{run}: {why}"));
        self.live.push(block);
    }

    pub fn blocks(&self) -> usize {
        self.live.len()
    }

    /// Frees the most recently allocated block, if there is one: on `stream`, or on the block's own
    /// stream if `stream` cannot be ordered after it.
    pub fn free_last(&mut self, pool: &dyn Pool, stream: &Stream) -> bool {
        let Some(block) = self.live.pop() else { return true };
        let (start, bytes) = (address_of(block.ptr), block.layout.size() as u64);
        self.run.faults.work(&block.alloc_stream);
        let ordered = || stream.wait(&block.alloc_stream.record()?);
        let is_other = stream.id() != block.alloc_stream.id();
        let stream =
            if is_other && self.attempt_own(ordered).is_none() { &block.alloc_stream } else { stream };
        let last = self.run.faults.work(stream);
        // SAFETY: a live block; `stream` is ordered after the work of other streams on it.
        let done = self.run.attempt(|| unsafe { pool.deallocate(block.ptr, block.layout, stream) });
        match done {
            Some(()) => self.ledger.freed(start, &[last]),
            None => {
                assert!(pool.usage().used_bytes >= bytes, "{}: the block is still allocated", self.run);
                self.live.insert(0, block);
            }
        }
        self.check(pool);
        done.is_some()
    }

    pub fn must_free_last(&mut self, pool: &dyn Pool, stream: &Stream) {
        let run = self.run;
        assert!(self.free_last(pool, stream), "{run}: the free fails");
    }
}
