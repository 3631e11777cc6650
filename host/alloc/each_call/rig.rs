//! What a test holds of a pool, and what it checks at each call.

use super::subjects::Pool;
use crate::alloc::address_of;
use crate::driver::flawed::{self, Call, Faults, Moment, Which};
use crate::driver::{Device, Stream};
use crate::error::{Error, OutOfMemory, Result};
use std::alloc::Layout;
use std::fmt;
use std::sync::Arc;
use warpheap_device::kernel::DevicePtr;

/// Of the device.
const MEMORY: u64 = 64 << 20;
/// How often the same is tried: what fails once goes well at the second time.
const TRIES: usize = 2;

struct Block {
    ptr: DevicePtr<u8>,
    layout: Layout,
    /// It may be used by work of that stream.
    home: Stream,
}

/// A device that fails, and what was allocated on it.
pub(super) struct Rig {
    pub device: Device,
    pub faults: Arc<Faults>,
    name: &'static str,
    which: Which,
    heals: bool,
    live: Vec<Block>,
    /// What was given back: where, how long, and the last work that used it.
    freed: Vec<(u64, u64, Moment)>,
    /// What constructors took and could not give back: there is no pool yet that could try again.
    excused: Vec<(Call, u64)>,
}

impl fmt::Display for Rig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}, failed: {:?}", self.name, self.which, self.faults.failed())
    }
}

/// Whether it says which call of the driver's failed.
fn is_told(error: &Error) -> bool {
    let text = error.to_string();
    text.contains("FLAWED") && text.contains("cu")
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 256).unwrap()
}

impl Rig {
    pub fn new(name: &'static str, which: Which, code: u32, heals: bool) -> Rig {
        let (device, faults) = flawed::device(MEMORY);
        faults.tell(which, code);
        Rig { device, faults, name, which, heals, live: Vec::new(), freed: Vec::new(), excused: Vec::new() }
    }

    /// Nothing fails any more.
    pub fn heal(&mut self) {
        if let Which::From(_) = self.which {
            self.faults.tell(Which::Never, 0);
        }
    }

    /// Calls it, and again if the driver failed. `None` if that was in vain: then the driver goes on failing.
    pub fn attempt<T>(&self, mut call: impl FnMut() -> Result<T>) -> Option<T> {
        for _ in 0..TRIES {
            match call() {
                Ok(done) => return Some(done),
                Err(error) => assert!(is_told(&error), "{self}: {error}"),
            }
        }
        assert!(matches!(self.which, Which::From(_)), "{self}: it fails a second time");
        None
    }

    /// The same of what has to be: the driver is well again then, if that is what it is to be.
    pub fn must<T>(&mut self, mut call: impl FnMut() -> Result<T>) -> Option<T> {
        if let Some(done) = self.attempt(&mut call) {
            return Some(done);
        }
        if !self.heals {
            return None;
        }
        self.heal();
        self.excused = self.faults.held();
        self.attempt(call)
    }

    /// Whether the driver has all back.
    pub fn has_all_back(&self) -> bool {
        self.faults.held() == self.excused
    }

    /// Whether there was room; there may be none.
    pub fn alloc(&mut self, pool: &dyn Pool, size: usize, stream: &Stream) -> bool {
        let is_full = |error: &Error| {
            matches!(error, Error::OutOfMemory(OutOfMemory::Pool { .. } | OutOfMemory::Device { .. }))
                && !is_told(error)
        };
        let of = layout(size);
        let taken = self.attempt(|| match pool.allocate(of, stream) {
            Ok(ptr) => Ok(Some(ptr)),
            Err(error) if is_full(&error) => Ok(None),
            Err(error) => Err(error),
        });
        pool.check();
        match taken.flatten() {
            Some(ptr) => self.enlist(Block { ptr, layout: of, home: stream.clone() }),
            None => return false,
        }
        true
    }

    pub fn must_alloc(&mut self, pool: &dyn Pool, size: usize, stream: &Stream) {
        assert!(self.alloc(pool, size, stream), "{self}: no room for {size} B: {:?}", pool.usage());
    }

    /// It overlaps no other block, and its stream comes after the work of whoever had its bytes before.
    fn enlist(&mut self, block: Block) {
        let (start, bytes) = (address_of(block.ptr), block.layout.size() as u64);
        assert!(start.is_multiple_of(block.layout.align() as u64));
        let meets = |other: u64, length: u64| start < other + length && other < start + bytes;
        for other in &self.live {
            assert!(!meets(address_of(other.ptr), other.layout.size() as u64), "{self}: two blocks overlap");
        }
        for (other, length, work) in &self.freed {
            let is_ordered = !meets(*other, *length) || self.faults.is_after(&block.home, *work);
            assert!(is_ordered, "{self}: {bytes} B at {start:#x} may still be in use");
        }
        self.live.push(block);
    }

    pub fn blocks(&self) -> usize {
        self.live.len()
    }

    /// Gives the block back that was allocated last, if there is one, on `stream`, or on its own if that cannot be ordered after it.
    pub fn free_last(&mut self, pool: &dyn Pool, stream: &Stream) -> bool {
        let Some(block) = self.live.pop() else { return true };
        let (start, bytes) = (address_of(block.ptr), block.layout.size() as u64);
        self.faults.work(&block.home);
        let ordered = || stream.wait(&block.home.record()?);
        let is_other = stream.id() != block.home.id();
        let stream = if is_other && self.attempt(ordered).is_none() { &block.home } else { stream };
        let last = self.faults.work(stream);
        // SAFETY: a live block, and other streams' work comes before.
        let done = self.attempt(|| unsafe { pool.deallocate(block.ptr, block.layout, stream) });
        pool.check();
        match done {
            Some(()) => self.freed.push((start, bytes, last)),
            // It is still allocated.
            None => self.live.insert(0, block),
        }
        done.is_some()
    }

    pub fn must_free_last(&mut self, pool: &dyn Pool, stream: &Stream) {
        assert!(self.free_last(pool, stream), "{self}: it is not taken back");
    }

    /// The pool goes with what is still allocated.
    pub fn forget(&mut self) {
        self.live.clear();
    }
}
