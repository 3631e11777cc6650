//! A reservation: an address range that is reserved once and backed with memory piece by piece.
//! Addresses never change.
//!
//! ```text
//!   address                    mapped                      reserved
//!   | piece | piece   | piece  |  addresses without memory  |
//! ```
//!
//! I1: the pieces are contiguous from the start of the range.
//! I2: each piece is mapped once, in one call, and the whole device may access it. Its memory was
//! created for it.
//! I3: a failing step undoes the earlier steps of its own piece. The other pieces are not affected.
//! I4: a piece that could not be undone is in `left` and is not in use. Undoing it is retried
//! before anything else is mapped, unmapped or freed. Nothing is mapped until that succeeds.
//!
//! Driver resources are freed in reverse order: mapping, memory, addresses. On drop each step is
//! tried twice; a step that still fails is logged.

use super::backend::{Pages, Range, VirtualMemory};
use super::device::Device;
use crate::error::{Error, Result};
use std::sync::Arc;

/// Number of attempts per step on drop, after which there is no later retry.
const LAST_TRIES: usize = 2;

/// Dropping it waits for all work submitted to the device so far.
pub(crate) struct Reservation {
    device: Device,
    pieces: Vec<Piece>,
    /// Pieces that are not fully undone (I4).
    left: Vec<Piece>,
    /// Dropped after the pieces: addresses are freed only when nothing is mapped there.
    addresses: Addresses,
}

/// A range of addresses with its memory. While incomplete, the steps that have succeeded.
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
    /// Reserves `bytes` of addresses, not 0 and a multiple of the granularity. The start is aligned
    /// to the granularity and to `align`, both powers of two.
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

    /// The entire address range.
    pub fn range(&self) -> Range {
        self.addresses.range
    }

    /// The granularity in bytes.
    pub fn granularity(&self) -> u64 {
        self.addresses.driver.granularity()
    }

    /// Number of mapped bytes, counted from the start.
    pub fn mapped(&self) -> u64 {
        self.pieces.last().map_or(0, |last| self.end_of(last))
    }

    fn start_of(&self, piece: &Piece) -> u64 {
        piece.range.address - self.addresses.range.address
    }

    fn end_of(&self, piece: &Piece) -> u64 {
        self.start_of(piece) + piece.range.bytes
    }

    /// Maps one more piece, up to offset `end`: a multiple of the granularity, beyond the mapped
    /// part and inside the reservation. A failure changes nothing (I3).
    pub fn map_to(&mut self, end: u64) -> Result<()> {
        self.clear()?;
        let (start, driver) = (self.mapped(), self.addresses.driver.clone());
        debug_assert!(start < end && end <= self.addresses.range.bytes);
        let range = Range { address: self.addresses.range.address + start, bytes: end - start };
        let mut piece = Piece { driver, range, memory: None, is_mapped: false };
        // SAFETY: reserved addresses after the mapped part (I1). `left` is empty, so nothing is
        // mapped there (I4).
        if let Err(error) = unsafe { piece.map() } {
            // SAFETY: the piece was not published, so no work uses it.
            if let Err(error) = unsafe { piece.undo() } {
                log(error, "memory could not be unmapped again", range);
                self.left.push(piece);
            }
            return Err(error);
        }
        self.pieces.push(piece);
        Ok(())
    }

    /// Retries undoing the pieces in `left` (I4).
    pub fn clear(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        self.left.retain_mut(|piece| {
            // SAFETY: a piece in `left` is not in use (I4).
            let done = unsafe { piece.undo() };
            let stays = done.is_err();
            outcome = std::mem::replace(&mut outcome, Ok(())).and(done);
            stays
        });
        outcome
    }

    /// Start of the first piece that lies entirely at or after byte `offset`; the end of the mapped
    /// part if there is none.
    pub fn cut(&self, offset: u64) -> u64 {
        let behind = self.pieces.iter().map(|piece| self.start_of(piece)).find(|start| *start >= offset);
        behind.unwrap_or(self.mapped())
    }

    /// Unmaps the pieces from byte `start` on, the last first. If unmapping fails, that piece and
    /// those before it stay mapped. If releasing the memory of an unmapped piece fails, the piece
    /// moves to `left` and is retried later (I4).
    ///
    /// # Safety
    /// No work in flight uses these pieces.
    pub unsafe fn unmap_from(&mut self, start: u64) -> Result<()> {
        let mut outcome = self.clear();
        while self.mapped() > start
            && let Some(mut last) = self.pieces.pop()
        {
            // SAFETY: the caller's promise: no work in flight uses the piece.
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
        // From the last to the first, the order in which `unmap_from` frees them.
        while self.pieces.pop().is_some() {}
    }
}

impl Piece {
    /// Creates memory and maps it.
    ///
    /// # Safety
    /// The range is reserved, nothing is mapped there, and it is not in use.
    unsafe fn map(&mut self) -> Result<()> {
        let pages = self.driver.create(self.range.bytes)?;
        self.memory = Some(pages);
        // SAFETY: the caller's promise: reserved, unmapped, unused. The new memory has the same
        // length and is not mapped elsewhere.
        unsafe { self.driver.map(self.range, pages) }?;
        self.is_mapped = true;
        // SAFETY: the range was just mapped, and nothing uses it, by the caller's promise.
        unsafe { self.driver.allow(self.range) }
    }

    /// # Safety
    /// No work in flight uses it.
    unsafe fn unmap(&mut self) -> Result<()> {
        if self.is_mapped {
            // SAFETY: mapped by `map`, unmapped once. The caller promises that no work in flight
            // uses it.
            unsafe { self.driver.unmap(self.range) }?;
            self.is_mapped = false;
        }
        Ok(())
    }

    /// Frees the memory, after [`unmap`](Self::unmap).
    fn release(&mut self) -> Result<()> {
        if let Some(pages) = self.memory {
            // SAFETY: created by `map`, freed once, and not mapped.
            unsafe { self.driver.release(pages) }?;
            self.memory = None;
        }
        Ok(())
    }

    /// Unmaps and frees what exists of the piece. After a failure the rest still exists.
    ///
    /// # Safety
    /// That of [`unmap`](Self::unmap).
    unsafe fn undo(&mut self) -> Result<()> {
        // SAFETY: the caller's promise: no work in flight uses it.
        unsafe { self.unmap() }?;
        self.release()
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: the piece was not published, or the reservation has waited for all work.
        let done = at_last(|| unsafe { self.undo() });
        if let Err(error) = done {
            log(error, "memory of a reservation could not be freed", self.range);
        }
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: reserved once, freed once, and the pieces were dropped before.
        let done = at_last(|| unsafe { self.driver.unreserve(self.range) });
        if let Err(error) = done {
            log(error, "addresses could not be freed", self.range);
        }
    }
}

/// Tries `step` up to `LAST_TRIES` times and returns the last result.
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
