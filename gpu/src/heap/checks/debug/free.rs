//! Frees in a debug heap: check the canaries, poison the bytes, put the block in quarantine.

use super::record::{Record, Recorded, State};
use super::{CANARY, FREED, NoBlock};
use crate::fault::{FaultCheck, FaultLog};
use crate::heap::structures::heap_core::HeapCore;
use core::ptr::NonNull;

impl HeapCore {
    /// Frees memory: puts the block in quarantine, from where it is freed to the heap later. Misuse
    /// by the call is recorded in the handle's log, damage to the block in the heap's log.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn free_debugged(&self, user: NonNull<u8>) {
        let address = user.as_ptr() as u64;
        let (block, record) = match self.freed_block(address) {
            Ok(found) => found,
            Err(check) => return self.misuse(check, address),
        };
        self.check_canaries(&block, &record);
        // SAFETY: this thread owns the block now (D1).
        unsafe { block.poisoned(&record).fill(FREED) };
        self.quarantine(block.whole.start);
    }

    /// Finds the live block with user's bytes from `address` on, and makes it `QUARANTINED`. The
    /// caller then owns the block. Returns the failed check if the address or the block is invalid.
    fn freed_block(&self, address: u64) -> Result<(Recorded, Record), FaultCheck> {
        let whole = self.whole_around(address).map_err(|why| match why {
            NoBlock::Foreign => FaultCheck::Outside,
            NoBlock::Free => FaultCheck::EntryWasFree,
            NoBlock::Inside => FaultCheck::NotAStart,
        })?;
        let block = Recorded { whole, salt: self.extra().salt };
        // An overwritten record is not trusted (D3).
        let (record, state) = block.read().ok_or(FaultCheck::InvalidRecord)?;
        if block.user(&record) != address {
            return Err(FaultCheck::NotAStart);
        }
        if state != State::Live || !block.turn(State::Live, State::Quarantined) {
            return Err(FaultCheck::NotLive);
        }
        Ok((block, record))
    }

    /// Records the first damaged byte of each canary, then restores the canary.
    fn check_canaries(&self, block: &Recorded, record: &Record) {
        let checks = [FaultCheck::CanaryBefore, FaultCheck::CanaryAfter];
        for (canary, check) in block.canaries(record).into_iter().zip(checks) {
            // SAFETY: this thread owns the block (D1).
            let Some(byte) = (unsafe { canary.first_other(CANARY) }) else { continue };
            self.damage(check, byte, record);
            // SAFETY: as above.
            unsafe { canary.fill(CANARY) };
        }
    }

    /// Checks a block that left quarantine and frees it to the heap, unless its record was
    /// overwritten. The caller owns the block.
    pub(super) fn leave(&self, start: u64) {
        let Ok(whole) = self.whole_around(start) else { return };
        let block = Recorded { whole, salt: self.extra().salt };
        let Some((record, _)) = block.read() else {
            // The block is never allocated again (D3).
            return self.log().record(FaultCheck::QuarantinedRecord, start, 0);
        };
        let [before, behind] = block.canaries(&record);
        let stretches = [(before, CANARY), (block.poisoned(&record), FREED), (behind, CANARY)];
        // SAFETY: this thread owns the block (D1).
        let written = stretches.into_iter().find_map(|(bytes, byte)| unsafe { bytes.first_other(byte) });
        if let Some(byte) = written {
            self.damage(FaultCheck::Poison, byte, &record);
        }
        if block.turn(State::Quarantined, State::Free)
            && let Some(block) = NonNull::new(start as *mut u8)
        {
            // SAFETY: the block left quarantine; no thread uses it, except by mistake.
            unsafe { self.free(block) };
        }
    }

    /// Records a byte that was written outside a live block.
    #[cold]
    fn damage(&self, check: FaultCheck, byte: u64, record: &Record) {
        self.log().record(check, byte, record.site.into());
    }

    /// Returns the requested size of the live block at `user`, or 0 if no live block starts there.
    ///
    /// # Safety
    /// See [`Heap::usable_size`](crate::heap::Heap::usable_size). This reads the block's record; at
    /// another address, its bytes may belong to another thread.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) unsafe fn usable_size_debugged(&self, user: NonNull<u8>) -> usize {
        let address = user.as_ptr() as u64;
        let Ok(whole) = self.whole_around(address) else { return 0 };
        let block = Recorded { whole, salt: self.extra().salt };
        match block.read() {
            Some((record, State::Live)) if block.user(&record) == address => record.size as usize,
            _ => 0,
        }
    }

    fn log(&self) -> &FaultLog {
        // SAFETY: `from_raw_parts`' promise.
        unsafe { &*self.extra().faults }
    }
}
