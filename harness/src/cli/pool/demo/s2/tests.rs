//! Faulty buffers, and the checks that detect the fault.

use super::super::planted::{Fault, Make, Planted, find_made, pool, stage};
use super::super::stage::Plant;
use super::*;
use std::mem::ManuallyDrop;

/// A buffer with a fault.
struct Wrong {
    fault: Fault,
    buffer: ManuallyDrop<GrowableBuffer>,
}

impl Wrong {
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// The reported size, one too large if the buffer miscounts.
    fn said(&self, bytes: u64) -> u64 {
        bytes + u64::from(self.is(Fault::Miscounts))
    }

    /// Replaces the buffer by one at another address, because the old one still exists. Copies
    /// nothing.
    fn move_to(&mut self, bytes: u64) -> Result<u64> {
        let mut other = GrowableBuffer::reserve(self.buffer.device(), self.buffer.reserved())?;
        let size = other.grow_to(bytes)?;
        other.fill_part(0, size.min(4), 0xff)?;
        drop(std::mem::replace(&mut *self.buffer, other));
        Ok(size)
    }

    /// Changes the size and a word although the growth failed.
    fn spoil(&mut self) -> Result<()> {
        let more = self.buffer.size() + 1;
        let size = self.buffer.grow_to(more)?;
        self.buffer.fill_part(0, size.min(4), 0xff)
    }
}

impl Growable for Wrong {
    fn address(&self) -> u64 {
        self.buffer.address()
    }

    fn size(&self) -> u64 {
        self.said(self.buffer.size())
    }

    fn reserved(&self) -> u64 {
        self.said(self.buffer.reserved())
    }

    fn granularity(&self) -> u64 {
        self.buffer.granularity()
    }

    fn grow_to(&mut self, bytes: u64) -> Result<u64> {
        if self.is(Fault::Elsewhere) && self.buffer.size() > 0 && bytes <= self.buffer.reserved() {
            return self.move_to(bytes);
        }
        let grown = self.buffer.grow_to(bytes).map(|size| self.said(size));
        match self.fault {
            Fault::Generous => grown.or(Ok(bytes)),
            Fault::TakesOnRefusal if grown.is_err() => self.spoil().and(grown),
            _ => grown,
        }
    }

    fn shrink_to(&mut self, bytes: u64) -> Result<u64> {
        if self.is(Fault::NeverTrims) { Ok(self.buffer.size()) } else { self.buffer.shrink_to(bytes) }
    }

    fn words(&self, from: u64, to: u64) -> Result<DeviceSlice<u32>> {
        self.buffer.words(from, if self.is(Fault::Short) { to - 4 } else { to })
    }
}

impl Drop for Wrong {
    fn drop(&mut self) {
        // An unordered buffer is dropped without a wait. Its memory is leaked, because a kernel
        // still writes to it.
        if !self.is(Fault::Unordered) {
            // SAFETY: dropped here only, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.buffer) };
        }
    }
}

/// Asserts that the step detects each fault, and that each of its checks detects at least one of
/// them.
fn finds(step: Step, faults: &[(Planted, &[&str])]) {
    let wrong = |fault, buffer| -> Buffer { Box::new(Wrong { fault, buffer: ManuallyDrop::new(buffer) }) };
    find_made(DEMO.launched, step, &Make { plain: |buffer| Box::new(buffer), wrong }, faults, &[]);
}

#[test]
fn a_buffer_that_moves_or_loses_words_or_does_not_wait_is_found() {
    let sizes = [
        "bytes of addresses that are reserved",
        "bytes with memory at first",
        "bytes after growing to 1 MiB",
        "bytes after growing to 4 MiB",
    ];
    let values = ["wrong ones of the 524288 old values", "wrong ones of the 524288 new values"];
    let faults: [(_, &[&str]); 8] = [
        (pool(Fault::Miscounts), &sizes),
        (pool(Fault::Elsewhere), &["the address is the same", values[0], "wrong ones of the values that"]),
        (stage(Plant::ForgottenWord), &[values[0], values[1], "wrong ones of the values that stayed"]),
        (pool(Fault::Short), &["values that were checked"]),
        (pool(Fault::Generous), &["growing past the reservation"]),
        (pool(Fault::TakesOnRefusal), &["address and bytes are as before", "and so are the values"]),
        (
            pool(Fault::NeverTrims),
            &["bytes after shrinking to the first", "bytes after shrinking to nothing"],
        ),
        (pool(Fault::Unordered), &["its end waits", "a launch with its address"]),
    ];
    finds(|stage, wrap| life(stage, wrap, 4), &faults);
}

#[test]
fn growth_beyond_the_device_that_is_granted_or_leaves_a_trace_is_found() {
    let faults: [(_, &[&str]); 4] = [
        (pool(Fault::Generous), &["growing to more than the device has"]),
        (pool(Fault::TakesOnRefusal), &["bytes with memory then"]),
        (pool(Fault::Miscounts), &["it can still grow"]),
        (stage(Plant::ForgottenWord), &["it can still grow"]),
    ];
    finds(large, &faults);
}

#[test]
fn memory_that_was_never_asked_for_is_found() {
    finds(never, &[(pool(Fault::Miscounts), &["bytes of one that never grew"])]);
}
