//! Resets a heap's metadata to the state in which all memory is free.
//!
//! The device writes nearly all of it, by fills and by copies within the metadata. The host sends a
//! few KiB and waits once, so building a heap takes little longer than writing its metadata.

use super::Heap;
use super::memory::FreeWords;
use crate::driver::{Stream, Transfer};
use crate::error::Result;
use crate::nvtx::NamedRange;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::{self, ClassInfo, Cursor, Span};
use warpheap_device::kernel::DeviceData;

/// Maximum bytes of cursors that the host sends; the other cursors are copies of them.
const UPLOAD_BYTES: u64 = 16 << 10;

/// The data that the host sends.
struct Upload {
    classes: Vec<ClassInfo>,
    /// Some cursors.
    cursors: Vec<u64>,
    /// The set of free slabs, with all slabs that have memory.
    free: FreeWords,
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
        let _range = NamedRange::new(c"a heap: reset", 0);
        let _held = self.backing.memory().block_launches()?;
        self.is_reset = false;
        let device = self.metadata.device();
        let (stream, upload) = (device.default_stream()?, self.upload());
        let queued = self.send_upload(&stream, &upload);
        // Before `upload` is dropped, whether or not queueing succeeded.
        let done = stream.settle();
        if done.is_err() {
            device.driver().drain();
        }
        done.and(queued)?;
        self.reset_debug()?;
        self.is_reset = true;
        Ok(())
    }

    fn send_upload(&self, stream: &Stream, upload: &Upload) -> Result<()> {
        let (metadata, offsets) = (&self.metadata, self.offsets);
        let fill = |start: u64, end: u64, byte| -> Result<Transfer> {
            let range = metadata.part(start, end - start)?;
            Ok(Transfer::Fill { range, byte })
        };
        let write = |offset, (from, bytes): (*const u8, usize)| -> Result<Transfer> {
            let to = metadata.part(offset, bytes as u64)?.address;
            Ok(Transfer::Write { to, from, bytes })
        };
        let before = [
            fill(offsets.free, offsets.end, 0)?,
            fill(offsets.entries, offsets.free, 0xff)?,
            // Includes the gaps between parts: a snapshot copies them.
            fill(offsets.handle, offsets.cursors, 0)?,
            write(offsets.handle, ((&raw const self.handle).cast(), size_of::<heap::Heap>()))?,
            write(offsets.classes, bytes_of(&upload.classes))?,
            write(offsets.cursors, bytes_of(&upload.cursors))?,
        ];
        let after = [write(offsets.free, bytes_of(&upload.free.0))?];
        let cursors = metadata.part(offsets.cursors, offsets.entries - offsets.cursors)?;
        let pattern = size_of_val(&upload.cursors[..]) as u64;
        let submit = |transfers: &[Transfer]| -> Result<()> {
            for transfer in transfers {
                // SAFETY: inside the metadata. `reset` has waited for the device, blocks
                // launches, and waits for the stream. So the metadata is not in use, and it, the
                // heap and `upload` live until the stream is done.
                unsafe { stream.submit(*transfer) }?;
            }
            Ok(())
        };
        submit(&before)?;
        // SAFETY: as above; the cursors are inside the metadata.
        unsafe { stream.repeat(cursors.address, pattern, cursors.bytes) }?;
        submit(&after)
    }

    fn upload(&self) -> Upload {
        let (layout, offsets) = (self.layout, self.offsets);
        let classes = (0..layout.classes).map(|class| layout.class(SizeClass(class))).collect();
        let bytes = (offsets.entries - offsets.cursors).min(UPLOAD_BYTES);
        let cursors = vec![Cursor::new(Span::UNUSED).to_word(); (bytes / 8) as usize];
        let mut free = FreeWords::none(&layout);
        free.add(&layout, 0..self.present);
        Upload { classes, cursors, free }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Device;

    #[test]
    fn reset_rewrites_all_metadata() {
        // The cursors' metadata is a fixed part of the heap: large enough for several uploads.
        let heap = Heap::builder(1023 << 20).initial(1 << 20).shards(1024);
        let mut heap = heap.build(&Device::cpu()).unwrap();
        let all = |heap: &Heap| {
            let mut words = vec![0_u64; (heap.offsets.end / 8) as usize];
            heap.metadata.read(0, &mut words).map(|()| words).unwrap()
        };
        // The padding behind the handle and the classes keeps its old contents.
        heap.metadata.fill(0xa5).unwrap();
        heap.reset().unwrap();
        let new = all(&heap);
        let word = |bytes: u64| (bytes / 8) as usize;
        let cursors = &new[word(heap.offsets.cursors)..word(heap.offsets.entries)];
        assert!(size_of_val(cursors) as u64 > 3 * UPLOAD_BYTES, "some are copies of copies");
        let unused = Cursor::new(Span::UNUSED).to_word();
        assert!(cursors.iter().all(|cursor| *cursor == unused));
        heap.metadata.fill(0x5a).unwrap();
        heap.reset().unwrap();
        let again = all(&heap);
        let kept = new.iter().zip(&again).filter(|(new, again)| new != again);
        assert!(kept.clone().all(|(_, again)| *again == 0x5a5a_5a5a_5a5a_5a5a));
        assert!(kept.count() < 2 * 128 / 8, "a gap behind each of two parts at most");
        assert!(heap.check().unwrap().is_empty());
    }
}
