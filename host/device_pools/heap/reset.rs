//! Resets a heap's metadata to the state in which all memory is free.
//!
//! The device writes nearly all of it, by fills and by copies within the metadata. The host sends a
//! few KiB and waits once, so building a heap takes little longer than writing its metadata.

use super::grow::FreeWords;
use super::pool::Heap;
use crate::driver::{Stream, Transfer};
use crate::error::Result;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::{self, ClassInfo, Cursor, Span};
use warpheap_device::kernel::DeviceData;

/// Maximum bytes of cursors that the host sends; the other cursors are copies of them.
const SENT_BYTES: u64 = 16 << 10;

/// The data that the host sends.
struct Sent {
    classes: Vec<ClassInfo>,
    /// Some cursors, each padded to the stride.
    cursors: Vec<u64>,
    /// Free-slab words that cover the slabs with memory.
    slabs: FreeWords,
}

/// The address and the length in bytes of the values.
fn bytes_of<T: DeviceData>(values: &[T]) -> (*const u8, usize) {
    (values.as_ptr().cast(), size_of_val(values))
}

impl Heap {
    /// Waits for the device, then frees all memory and clears the faults. Launches that use the
    /// heap wait until the reset is done. Blocks allocated before must not be used any more.
    ///
    /// # Errors
    /// An earlier failure of the device. If the reset itself failed, no launch may use the
    /// heap until a reset has succeeded; until then allocations, frees, growths and snapshots by
    /// the host fail with [`NotReset`](crate::Error::NotReset).
    pub fn reset(&mut self) -> Result<()> {
        let _held = self.backing.memory().hold_off_launches()?;
        self.is_reset = false;
        let device = self.metadata.device();
        let (stream, sent) = (device.default_stream()?, self.sent());
        let queued = self.send(&stream, &sent);
        // Before `sent` is dropped, whether or not queueing succeeded.
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
        let fill = |start: u64, end: u64, byte| -> Result<Transfer> {
            let range = metadata.part(start, end - start)?;
            Ok(Transfer::Fill { range, byte })
        };
        let write = |offset, (from, bytes): (*const u8, usize)| -> Result<Transfer> {
            let to = metadata.part(offset, bytes as u64)?.address;
            Ok(Transfer::Write { to, from, bytes })
        };
        let before = [
            fill(places.slab_sets, places.end, 0)?,
            fill(places.entries, places.slab_sets, 0xff)?,
            write(places.handle, ((&raw const self.handle).cast(), size_of::<heap::Heap>()))?,
            write(places.classes, bytes_of(&sent.classes))?,
            write(places.cursors, bytes_of(&sent.cursors))?,
        ];
        let after = [
            write(places.fresh, bytes_of(&sent.slabs.fresh))?,
            write(places.slab_sets, bytes_of(&sent.slabs.free))?,
        ];
        let cursors = metadata.part(places.cursors, places.entries - places.cursors)?;
        let pattern = size_of_val(&sent.cursors[..]) as u64;
        let submit = |transfers: &[Transfer]| -> Result<()> {
            for transfer in transfers {
                // SAFETY: inside the metadata. `reset` has waited for the device, holds off
                // launches, and waits for the stream. So the metadata is not in use, and it, the
                // heap and `sent` live until the stream is done.
                unsafe { stream.submit(*transfer) }?;
            }
            Ok(())
        };
        submit(&before)?;
        // SAFETY: as above; the cursors are inside the metadata.
        unsafe { stream.repeat(cursors.address, pattern, cursors.bytes) }?;
        submit(&after)
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
            // The device has already filled the words with zeroes.
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
    fn overwritten_metadata_is_new_after_a_reset() {
        let mut heap = Heap::builder(80 << 20).shards(64).build(&Device::cpu()).unwrap();
        let all = |heap: &Heap| {
            let mut words = vec![0_u64; (heap.places.end / 8) as usize];
            heap.metadata.read(0, &mut words).map(|()| words).unwrap()
        };
        // The padding between the parts keeps its old contents.
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
