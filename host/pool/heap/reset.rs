//! A heap's metadata when all of its memory is free.
//!
//! The device writes nearly all of it, by fills and by copies of what is there. The host sends some
//! KiB and waits once, so that a set-up takes little longer than the metadata take to be written.

use super::Heap;
use super::grow::FreeWords;
use crate::driver::Stream;
use crate::error::Result;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::{ClassInfo, Cursor, Span};

/// Bytes of cursors that the host sends at most; the others are copies of them.
const SENT_BYTES: u64 = 16 << 10;

/// What the host sends.
struct Sent {
    classes: Vec<ClassInfo>,
    /// Some cursors, each as long as their stride.
    cursors: Vec<u64>,
    /// Where the slabs are found that have memory.
    slabs: FreeWords,
}

impl Heap {
    /// Waits for the device, then makes all memory free and forgets the faults. Launches that are
    /// given the heap wait meanwhile. What was allocated before must not be used any more.
    ///
    /// # Errors
    /// What failed since. If it was the reset itself, no launch may be given the heap until a reset
    /// has succeeded; until then allocations, frees, growths and snapshots by the host fail with
    /// [`NotReset`](crate::Error::NotReset).
    pub fn reset(&mut self) -> Result<()> {
        let _held = self.backing.memory().hold_off_launches()?;
        self.is_reset = false;
        let device = self.metadata.device();
        let (stream, sent) = (device.default_stream()?, self.sent());
        let queued = self.send(&stream, &sent);
        // Before `sent` goes, whatever has come of the queueing.
        let done = stream.synchronize();
        if done.is_err() {
            device.driver().drain();
        }
        done.and(queued)?;
        self.reset_debug()?;
        self.is_reset = true;
        Ok(())
    }

    fn send(&self, stream: &Stream, sent: &Sent) -> Result<()> {
        let (metadata, places) = (&self.metadata, self.places);
        let cursor_bytes = size_of_val(&sent.cursors[..]) as u64;
        // SAFETY: `reset` has waited for the device, holds off launches, and waits for the stream.
        // So it is for all that follow.
        unsafe { metadata.fill_on(stream, places.slab_sets, places.end - places.slab_sets, 0) }?;
        // SAFETY: as above.
        unsafe { metadata.fill_on(stream, places.entries, places.slab_sets - places.entries, 0xff) }?;
        // SAFETY: as above; the heap and `sent` live until then.
        unsafe { metadata.write_handle_on(stream, places.handle, &self.handle) }?;
        // SAFETY: as above.
        unsafe { metadata.write_on(stream, places.classes, &sent.classes) }?;
        // SAFETY: as above.
        unsafe { metadata.write_on(stream, places.cursors, &sent.cursors) }?;
        let all_bytes = places.entries - places.cursors;
        // SAFETY: as above.
        unsafe { metadata.repeat_on(stream, places.cursors, cursor_bytes, all_bytes) }?;
        // SAFETY: as above.
        unsafe { metadata.write_on(stream, places.fresh, &sent.slabs.fresh) }?;
        // SAFETY: as above.
        unsafe { metadata.write_on(stream, places.slab_sets, &sent.slabs.free) }
    }

    fn sent(&self) -> Sent {
        let (layout, places) = (self.layout, self.places);
        let classes = (0..layout.classes).map(|class| layout.class(SizeClass(class))).collect();
        let bytes = (places.entries - places.cursors).min(SENT_BYTES);
        let mut cursors = vec![0_u64; (bytes / 8) as usize];
        for cursor in cursors.chunks_mut(1 << (places.cursor_stride_log2 - 3)) {
            cursor[..4].copy_from_slice(&Cursor::new(Span::UNUSED).to_words());
        }
        let mut slabs = FreeWords::none(&layout);
        slabs.add(&layout, 0..self.present);
        if slabs.free.iter().all(|word| *word == 0) {
            // The device has written that already.
            slabs.free.clear();
        }
        Sent { classes, cursors, slabs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn what_was_written_over_is_as_new_after_a_reset() {
        let mut heap = Heap::builder(80 << 20).homes(64).build(&Device::cpu()).unwrap();
        let all = |heap: &Heap| {
            let mut words = vec![0_u64; (heap.places.end / 8) as usize];
            heap.metadata.read(0, &mut words).map(|()| words).unwrap()
        };
        // What lies between the parts keeps what it held.
        heap.metadata.fill(0xa5).unwrap();
        heap.reset().unwrap();
        let new = all(&heap);
        let place = |bytes: u64| (bytes / 8) as usize;
        let cursors = &new[place(heap.places.cursors)..place(heap.places.entries)];
        assert!(size_of_val(cursors) as u64 > 3 * SENT_BYTES, "some are copies of copies");
        for cursor in cursors.chunks(1 << (heap.places.cursor_stride_log2 - 3)) {
            assert_eq!(cursor[..4], Cursor::new(Span::UNUSED).to_words());
        }
        heap.metadata.fill(0x5a).unwrap();
        heap.reset().unwrap();
        let again = all(&heap);
        let kept = new.iter().zip(&again).filter(|(new, again)| new != again);
        assert!(kept.clone().all(|(_, again)| *again == 0x5a5a_5a5a_5a5a_5a5a));
        assert!(kept.count() < 11 * 128 / 8, "a gap behind each part at most");
        assert!(heap.check().unwrap().is_empty());
    }
}
