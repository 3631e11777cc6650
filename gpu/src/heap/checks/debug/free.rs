//! Frees in a debug heap: the canaries are looked at, the bytes poisoned, the block put in quarantine.

use super::record::{Record, Recorded, State};
use super::{CANARY, FREED, NoBlock};
use crate::fault::{FaultCheck, FaultLog};
use crate::heap::Heap;
use core::ptr::NonNull;

impl Heap {
    /// Gives memory back, later. What is wrong with the call is written to the handle's log, and what is wrong with the
    /// block to the heap's.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn free_debugged(&self, user: NonNull<u8>) {
        let address = user.as_ptr() as u64;
        let (block, record) = match self.freed_block(address) {
            Ok(found) => found,
            Err(check) => return self.core.misuse(check, address),
        };
        self.check_canaries(&block, &record);
        // SAFETY: this thread has the block now (D1).
        unsafe { block.poisoned(&record).fill(FREED) };
        self.quarantine(block.whole.start);
    }

    /// The live block whose user's bytes start there: it is `QUARANTINED` now, and the caller's. Or what is wrong.
    fn freed_block(&self, address: u64) -> Result<(Recorded, Record), FaultCheck> {
        let whole = self.whole_around(address).map_err(|why| match why {
            NoBlock::Foreign => FaultCheck::Outside,
            NoBlock::Free => FaultCheck::EntryWasFree,
            NoBlock::Inside => FaultCheck::NotAStart,
        })?;
        let block = Recorded { whole, salt: self.extra().salt };
        // Of a record that was written over nothing is believed (D3).
        let (record, state) = block.read().ok_or(FaultCheck::InvalidRecord)?;
        if block.user(&record) != address {
            return Err(FaultCheck::NotAStart);
        }
        if state != State::Live || !block.turn(State::Live, State::Quarantined) {
            return Err(FaultCheck::NotLive);
        }
        Ok((block, record))
    }

    /// Writes down the first byte of either canary that is none, and mends both.
    fn check_canaries(&self, block: &Recorded, record: &Record) {
        let checks = [FaultCheck::CanaryBefore, FaultCheck::CanaryAfter];
        for (canary, check) in block.canaries(record).into_iter().zip(checks) {
            // SAFETY: this thread has the block (D1).
            let Some(byte) = (unsafe { canary.first_other(CANARY) }) else { continue };
            self.damage(check, byte, record);
            // SAFETY: the same.
            unsafe { canary.fill(CANARY) };
        }
    }

    /// Gives the heap a block that is out of quarantine, and the caller's, if nothing wrote to its record.
    pub(super) fn leave(&self, start: u64) {
        let Ok(whole) = self.whole_around(start) else { return };
        let block = Recorded { whole, salt: self.extra().salt };
        let Some((record, _)) = block.read() else {
            // Not handed out again (D3).
            return self.log().record(FaultCheck::QuarantinedRecord, start, 0);
        };
        let [before, behind] = block.canaries(&record);
        let stretches = [(before, CANARY), (block.poisoned(&record), FREED), (behind, CANARY)];
        // SAFETY: this thread has the block (D1).
        let written = stretches.into_iter().find_map(|(bytes, byte)| unsafe { bytes.first_other(byte) });
        if let Some(byte) = written {
            self.damage(FaultCheck::Poison, byte, &record);
        }
        if block.turn(State::Quarantined, State::Free)
            && let Some(block) = NonNull::new(start as *mut u8)
        {
            // SAFETY: out of quarantine; no one uses it but by mistake.
            unsafe { self.core.free(block) };
        }
    }

    /// Writes down a byte that someone wrote to without having it.
    #[cold]
    fn damage(&self, check: FaultCheck, byte: u64, record: &Record) {
        self.log().record(check, byte, record.site.into());
    }

    /// The requested size of the live block at `user`; 0 if no live block starts there.
    ///
    /// # Safety
    /// As for [`Heap::usable_size`]: it reads the block's record, and elsewhere these may be
    /// another thread's bytes.
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
