//! One stream for each raw handle that a program passes.

use crate::lock::{read, write};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::RwLock;
use warpheap::error::InvalidRequest;
use warpheap::{Backend, Device, Result, Stream};

/// `CU_STREAM_LEGACY`, another handle of the default stream, where 0 is ambiguous.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`: another stream in each thread.
const PER_THREAD: usize = 2;

/// The streams of a program that names them by raw handles, for pools in other languages.
///
/// A pool caches memory by the id of a stream, and each call of [`Stream::from_raw`] makes a stream
/// with a new id. So this keeps one [`Stream`] for each handle. On the CPU, 0 is the default
/// stream, and each other number is a stream of its own.
///
/// ```
/// use std::ptr::without_provenance_mut;
/// use warpheap::Device;
/// use warpheap_bindings::RawStreams;
///
/// let device = Device::cpu();
/// let streams = RawStreams::new(&device);
/// let handle = without_provenance_mut(7);
/// // SAFETY: the CPU has no raw streams: a number needs no live stream.
/// let (first, second) = unsafe { (streams.get(handle)?, streams.get(handle)?) };
/// assert_eq!(first.id(), second.id());
/// streams.forget(handle);
/// # Ok::<(), warpheap::Error>(())
/// ```
#[derive(Debug)]
pub struct RawStreams {
    device: Device,
    /// By address of the canonical handle. They are few, so a search is faster than a hash.
    known: RwLock<Vec<(usize, Stream)>>,
}

impl RawStreams {
    /// The handle of the legacy default stream that is not null: `CU_STREAM_LEGACY`.
    pub const LEGACY: u64 = LEGACY as u64;

    /// No streams yet.
    pub fn new(device: &Device) -> RawStreams {
        RawStreams { device: device.clone(), known: RwLock::default() }
    }

    /// The handle by which a stream of the backend is known: null for both handles of CUDA's
    /// default stream.
    ///
    /// # Errors
    /// [`InvalidRequest::StreamPerThread`] for CUDA's handle of another stream in each thread,
    /// which a pool would take for one stream.
    pub fn canonical(backend: Backend, raw: *mut c_void) -> Result<*mut c_void> {
        match (backend, raw.addr()) {
            (Backend::Cuda, LEGACY) => Ok(null_mut()),
            (Backend::Cuda, PER_THREAD) => Err(InvalidRequest::StreamPerThread.into()),
            _ => Ok(raw),
        }
    }

    /// The stream of a handle: the same stream in each call, until it is forgotten.
    ///
    /// # Errors
    /// Those of [`canonical`](Self::canonical) and [`Stream::from_raw`]; on the CPU those of
    /// [`Device::stream`].
    ///
    /// # Safety
    /// On a GPU, `raw` is null or a live stream of the device's context, which is not being
    /// captured into a graph. It stays live until it is forgotten or `self` is dropped, and as long
    /// as any handle of the returned stream or any of its events.
    pub unsafe fn get(&self, raw: *mut c_void) -> Result<Stream> {
        let raw = self.own(raw)?;
        if let Some(stream) = find(&read(&self.known), raw) {
            return Ok(stream);
        }
        let mut known = write(&self.known);
        // Another thread may have added it in between.
        if let Some(stream) = find(&known, raw) {
            return Ok(stream);
        }
        let stream = match self.device.backend() {
            // SAFETY: the caller's promise. Null is the legacy default stream, which always lives.
            Backend::Cuda => unsafe { Stream::from_raw(&self.device, raw) },
            _ if raw.is_null() => self.device.default_stream(),
            _ => self.device.stream(),
        }?;
        known.push((raw.addr(), stream.clone()));
        Ok(stream)
    }

    /// Drops the stream of a handle, before the program destroys it. A pool then reuses its memory
    /// on other streams. Does nothing for a handle that was not passed to [`get`](Self::get).
    pub fn forget(&self, raw: *mut c_void) {
        let Ok(raw) = self.own(raw) else { return };
        let mut known = write(&self.known);
        let place = known.iter().position(|(address, _)| *address == raw.addr());
        let forgotten = place.map(|place| known.swap_remove(place));
        // The stream is dropped after the lock: it notifies pools, and may record an event.
        drop(known);
        drop(forgotten);
    }

    fn own(&self, raw: *mut c_void) -> Result<*mut c_void> {
        RawStreams::canonical(self.device.backend(), raw)
    }
}

fn find(known: &[(usize, Stream)], raw: *mut c_void) -> Option<Stream> {
    known.iter().find(|(address, _)| *address == raw.addr()).map(|(_, stream)| stream.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::without_provenance_mut;
    use warpheap::__private::lives;
    use warpheap::Error;

    fn on_cuda(raw: usize) -> Result<usize> {
        RawStreams::canonical(Backend::Cuda, without_provenance_mut(raw)).map(<*mut c_void>::addr)
    }

    fn get(streams: &RawStreams, raw: usize) -> Stream {
        // SAFETY: on the CPU, a number needs no live stream.
        unsafe { streams.get(without_provenance_mut(raw)) }.unwrap()
    }

    #[test]
    fn both_handles_of_the_default_stream_are_one() {
        for (raw, canonical) in [(0, 0), (1, 0), (3, 3), (usize::MAX, usize::MAX)] {
            assert_eq!(on_cuda(raw).unwrap(), canonical);
        }
    }

    #[test]
    fn the_stream_of_each_thread_is_rejected() {
        let error = on_cuda(2).unwrap_err();
        assert!(matches!(error, Error::InvalidRequest(InvalidRequest::StreamPerThread)), "{error}");
        let text = error.to_string();
        assert!(text.contains("cudaStreamPerThread") && text.contains("pass 0"), "{text}");
    }

    #[test]
    fn each_number_is_a_stream_of_the_cpu() {
        let device = Device::cpu();
        let streams = RawStreams::new(&device);
        assert_eq!(get(&streams, 0).id(), device.default_stream().unwrap().id());
        let ids = [0, 1, 2, 3, usize::MAX].map(|raw| get(&streams, raw).id());
        for (i, id) in ids.iter().enumerate() {
            assert!(!ids[..i].contains(id), "{ids:?}");
        }
        assert_eq!([0, 1, 2, 3, usize::MAX].map(|raw| get(&streams, raw).id()), ids);
    }

    #[test]
    fn a_stream_lives_until_it_is_forgotten() {
        let streams = RawStreams::new(&Device::cpu());
        let ids = [7, 8].map(|raw| get(&streams, raw).id());
        let [first, second] = [7, 8].map(|raw| lives(&get(&streams, raw)));
        assert!(first() && second());
        streams.forget(without_provenance_mut(7));
        assert!(!first() && second());
        streams.forget(without_provenance_mut(9));
        assert_ne!(get(&streams, 7).id(), ids[0]);
        assert_eq!(get(&streams, 8).id(), ids[1]);
        drop(streams);
        assert!(!second());
    }

    #[test]
    fn threads_get_the_same_stream() {
        let streams = RawStreams::new(&Device::cpu());
        let ids = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(|| get(&streams, 5).id()));
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }
}
