//! Addresses that are reserved once, and get memory piece by piece, without anything moving.
//!
//! ```text
//!   address                    mapped                      reserved
//!   | piece | piece   | piece  |  addresses without memory  |
//! ```
//!
//! I1: the pieces lie one after the other from the start on, without gaps. I2: each is mapped once, by itself, and
//! everyone on the device may use it; its memory was created for it. I3: a step that fails undoes the steps of its own
//! piece, and the others stay as they are. I4: what could not be undone is in `left`, which nobody uses; it is tried again before
//! anything else is mapped, unmapped or given back, and until that went well nothing is mapped.
//!
//! Every handle of the driver's is given back in the opposite order: mapping, memory, addresses. At the end each step is tried
//! twice; what the driver refuses then is logged.

use super::backend::{Pages, Range, VirtualMemory};
use super::device::Device;
use crate::error::{Error, Result};
use std::sync::Arc;

/// How often a step is tried at the end, when nobody can come back to it.
const LAST_TRIES: usize = 2;

/// Dropping it waits for the work that the device was given before.
pub(crate) struct Reservation {
    device: Device,
    pieces: Vec<Piece>,
    /// What is left of pieces (I4).
    left: Vec<Piece>,
    /// After the pieces: nothing may be mapped to the addresses when they go.
    addresses: Addresses,
}

/// Memory at its addresses, or as much of that as there is.
struct Piece {
    driver: Arc<dyn VirtualMemory>,
    range: Range,
    memory: Option<Pages>,
    is_mapped: bool,
}

struct Addresses {
    driver: Arc<dyn VirtualMemory>,
    range: Range,
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
        let addresses = Addresses { driver, range };
        Ok(Reservation { device: device.clone(), pieces: Vec::new(), left: Vec::new(), addresses })
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
        piece.range.address - self.addresses.range.address
    }

    fn end_of(&self, piece: &Piece) -> u64 {
        self.start_of(piece) + piece.range.bytes
    }

    /// Maps one more piece, up to byte `end`, a multiple of the granularity behind what is mapped and inside of the
    /// reservation. A failure leaves all as it was (I3).
    pub fn map_to(&mut self, end: u64) -> Result<()> {
        self.clear()?;
        let (start, driver) = (self.mapped(), self.addresses.driver.clone());
        debug_assert!(start < end && end <= self.addresses.range.bytes);
        let range = Range { address: self.addresses.range.address + start, bytes: end - start };
        let mut piece = Piece { driver, range, memory: None, is_mapped: false };
        // SAFETY: reserved addresses behind what is mapped (I1), and nothing is left there (I4).
        if let Err(error) = unsafe { piece.map() } {
            // SAFETY: nobody was told of it.
            if let Err(error) = unsafe { piece.undo() } {
                log(error, "memory could not be unmapped again", range);
                self.left.push(piece);
            }
            return Err(error);
        }
        self.pieces.push(piece);
        Ok(())
    }

    /// Tries again what could not be undone (I4).
    pub fn clear(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        self.left.retain_mut(|piece| {
            // SAFETY: nobody uses it (I4).
            let done = unsafe { piece.undo() };
            let stays = done.is_err();
            outcome = std::mem::replace(&mut outcome, Ok(())).and(done);
            stays
        });
        outcome
    }

    /// Where the first piece starts of those that lie behind byte `offset` as a whole; what is mapped if there are none.
    pub fn cut(&self, offset: u64) -> u64 {
        let behind = self.pieces.iter().map(|piece| self.start_of(piece)).find(|start| *start >= offset);
        behind.unwrap_or(self.mapped())
    }

    /// Unmaps the pieces from byte `start` on, the last first. After a failure that one and those before it are there; but if it was memory
    /// that did not go back, it has no addresses any more, and is tried again later (I4).
    ///
    /// # Safety
    /// No work in flight uses them.
    pub unsafe fn unmap_from(&mut self, start: u64) -> Result<()> {
        let mut outcome = self.clear();
        while self.mapped() > start
            && let Some(mut last) = self.pieces.pop()
        {
            // SAFETY: the caller's promise.
            if let Err(error) = unsafe { last.unmap() } {
                self.pieces.push(last);
                return Err(error);
            }
            if let Err(error) = last.release() {
                self.left.push(last);
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.pieces.is_empty() {
            self.device.driver().drain();
        }
        self.left.clear();
        // From the last to the first, as they are undone elsewhere.
        while self.pieces.pop().is_some() {}
    }
}

impl Piece {
    /// Creates memory and maps it.
    ///
    /// # Safety
    /// It is reserved, nothing is mapped there, and nobody uses it.
    unsafe fn map(&mut self) -> Result<()> {
        let pages = self.driver.create(self.range.bytes)?;
        self.memory = Some(pages);
        // SAFETY: the caller's promise; memory of that length that is mapped nowhere else.
        unsafe { self.driver.map(self.range, pages) }?;
        self.is_mapped = true;
        // SAFETY: what was just mapped.
        unsafe { self.driver.allow(self.range) }
    }

    /// # Safety
    /// No work in flight uses it.
    unsafe fn unmap(&mut self) -> Result<()> {
        if self.is_mapped {
            // SAFETY: mapped by `map`, unmapped once; the rest is the caller's promise.
            unsafe { self.driver.unmap(self.range) }?;
            self.is_mapped = false;
        }
        Ok(())
    }

    /// After [`unmap`](Self::unmap).
    fn release(&mut self) -> Result<()> {
        if let Some(pages) = self.memory {
            // SAFETY: created by `map`, given back once, and mapped nowhere.
            unsafe { self.driver.release(pages) }?;
            self.memory = None;
        }
        Ok(())
    }

    /// What is there of it goes. After a failure the rest is still there.
    ///
    /// # Safety
    /// That of [`unmap`](Self::unmap).
    unsafe fn undo(&mut self) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.unmap() }?;
        self.release()
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: nobody was told of it, or the reservation has waited for all work.
        let done = at_last(|| unsafe { self.undo() });
        if let Err(error) = done {
            log(error, "memory of a reservation could not be given back", self.range);
        }
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: reserved once, given back once, and the pieces went before.
        let done = at_last(|| unsafe { self.driver.unreserve(self.range) });
        if let Err(error) = done {
            log(error, "addresses could not be given back", self.range);
        }
    }
}

/// The outcome of the last of some tries.
fn at_last(mut step: impl FnMut() -> Result<()>) -> Result<()> {
    let mut outcome = step();
    for _ in 1..LAST_TRIES {
        outcome = outcome.or_else(|_| step());
    }
    outcome
}

fn log(error: Error, what: &str, range: Range) {
    tracing::warn!(%error, address = range.address, bytes = range.bytes, "{what}");
}
