//! Addresses that are reserved once, and get memory piece by piece, without anything moving.
//!
//! ```text
//!   address                    mapped                      reserved
//!   | piece | piece   | piece  |  addresses without memory  |
//! ```
//!
//! I1: the pieces lie one after the other from the start on, without gaps. I2: each is mapped once, by itself, and
//! everyone on the device may use it; its memory was created for it. I3: a step that fails undoes the steps of its own
//! piece, and the others stay as they are; should undoing fail, too, no piece can be mapped there any more, and that is logged.
//!
//! Every handle of the driver's is given back by a `Drop` of its own, in the opposite order: mapping, memory, addresses.

use super::backend::{Pages, Range, VirtualMemory};
use super::device::Device;
use crate::error::Result;
use std::sync::Arc;

/// Dropping it waits for the work that the device was given before.
pub(crate) struct Reservation {
    device: Device,
    /// Before the addresses, which nothing may be mapped to when they go.
    pieces: Vec<Piece>,
    addresses: Addresses,
}

/// Memory at its addresses.
struct Piece {
    /// Before the memory, which nothing may be mapped to when it goes.
    mapping: Mapping,
    _memory: Memory,
}

struct Addresses {
    driver: Arc<dyn VirtualMemory>,
    range: Range,
}

struct Memory {
    driver: Arc<dyn VirtualMemory>,
    pages: Pages,
}

struct Mapping {
    driver: Arc<dyn VirtualMemory>,
    range: Range,
    is_there: bool,
}

impl Reservation {
    /// `bytes` of addresses, not 0 and a multiple of the granularity, at a multiple of that and of `align`, powers of
    /// two.
    pub fn new(
        device: &Device,
        driver: Arc<dyn VirtualMemory>,
        bytes: u64,
        align: u64,
    ) -> Result<Reservation> {
        let range = driver.reserve(bytes, align.max(driver.granularity()))?;
        Ok(Reservation { device: device.clone(), pieces: Vec::new(), addresses: Addresses { driver, range } })
    }

    /// All of its addresses.
    pub fn range(&self) -> Range {
        self.addresses.range
    }

    /// In bytes.
    pub fn granularity(&self) -> u64 {
        self.addresses.driver.granularity()
    }

    /// Bytes from the start on that have memory.
    pub fn mapped(&self) -> u64 {
        self.pieces.last().map_or(0, |last| self.end_of(last))
    }

    fn start_of(&self, piece: &Piece) -> u64 {
        piece.mapping.range.address - self.addresses.range.address
    }

    fn end_of(&self, piece: &Piece) -> u64 {
        self.start_of(piece) + piece.mapping.range.bytes
    }

    /// Maps one more piece, up to byte `end`, a multiple of the granularity behind what is mapped and inside of the
    /// reservation. A failure leaves all as it was (I3).
    pub fn map_to(&mut self, end: u64) -> Result<()> {
        let (start, driver) = (self.mapped(), &self.addresses.driver);
        debug_assert!(start < end && end <= self.addresses.range.bytes);
        let range = Range { address: self.addresses.range.address + start, bytes: end - start };
        let memory = Memory::new(driver, range.bytes)?;
        let mapping = Mapping::new(driver, range, &memory)?;
        // SAFETY: what was just mapped.
        unsafe { driver.allow(range) }?;
        self.pieces.push(Piece { mapping, _memory: memory });
        Ok(())
    }

    /// Where the first piece starts of those that lie behind byte `offset` as a whole; what is mapped if there are none.
    pub fn cut(&self, offset: u64) -> u64 {
        let behind = self.pieces.iter().map(|piece| self.start_of(piece)).find(|start| *start >= offset);
        behind.unwrap_or(self.mapped())
    }

    /// Unmaps the pieces from byte `start` on, the last first. After a failure that one and those before it are there.
    ///
    /// # Safety
    /// No work in flight uses them.
    pub unsafe fn unmap_from(&mut self, start: u64) -> Result<()> {
        while self.mapped() > start
            && let Some(last) = self.pieces.last_mut()
        {
            // SAFETY: the caller's promise.
            unsafe { last.mapping.undo() }?;
            self.pieces.pop();
        }
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.pieces.is_empty() {
            self.device.driver().drain();
        }
        // From the last to the first, as they are undone elsewhere.
        while self.pieces.pop().is_some() {}
    }
}

impl Memory {
    fn new(driver: &Arc<dyn VirtualMemory>, bytes: u64) -> Result<Memory> {
        let pages = driver.create(bytes)?;
        Ok(Memory { driver: driver.clone(), pages })
    }
}

impl Mapping {
    fn new(driver: &Arc<dyn VirtualMemory>, range: Range, memory: &Memory) -> Result<Mapping> {
        // SAFETY: reserved addresses behind what is mapped (I1), and memory of that length that is mapped nowhere else.
        unsafe { driver.map(range, memory.pages) }?;
        Ok(Mapping { driver: driver.clone(), range, is_there: true })
    }

    /// # Safety
    /// No work in flight uses it.
    unsafe fn undo(&mut self) -> Result<()> {
        if self.is_there {
            // SAFETY: mapped by `new`, unmapped once; the rest is the caller's promise.
            unsafe { self.driver.unmap(self.range) }?;
            self.is_there = false;
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: no work has been given it yet, or the reservation has waited for that.
        log(unsafe { self.undo() }, "memory could not be unmapped", self.range);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: created by `new`, given back once, and its mapping went before.
        let done = unsafe { self.driver.release(self.pages) };
        if let Err(error) = done {
            tracing::warn!(%error, "memory of a reservation could not be given back");
        }
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: reserved once, given back once, and the pieces went before.
        log(unsafe { self.driver.unreserve(self.range) }, "addresses could not be given back", self.range);
    }
}

fn log(done: Result<()>, what: &str, range: Range) {
    if let Err(error) = done {
        tracing::warn!(%error, address = range.address, bytes = range.bytes, "{what}");
    }
}
