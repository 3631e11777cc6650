//! The streams of a caching pool, by raw handle.
//!
//! A pool caches blocks by the id of a stream, and each `Stream` made from a raw handle has its own
//! id. So the pool keeps one for each raw handle.

use crate::failure::{Failure, Result};
use crate::lock::{read, write};
use host::{Backend, Device, Stream};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::RwLock;

/// `CU_STREAM_LEGACY`, another handle of the default stream.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`: another stream in each thread.
const PER_THREAD: usize = 2;

pub(crate) struct Streams {
    device: Device,
    known: RwLock<HashMap<usize, Stream>>,
}

/// The address of a handle; both handles of the legacy default stream have one.
fn key(raw: *mut c_void) -> usize {
    if raw.addr() == LEGACY { 0 } else { raw.addr() }
}

impl Streams {
    pub fn new(device: Device) -> Streams {
        Streams { device, known: RwLock::default() }
    }

    /// The stream of a handle.
    ///
    /// # Safety
    /// The handle is null or a live stream, which is not capturing and lives until it is forgotten
    /// or `self` is dropped.
    pub unsafe fn get(&self, raw: *mut c_void) -> Result<Stream> {
        if let Some(stream) = read(&self.known).get(&key(raw)) {
            return Ok(stream.clone());
        }
        // SAFETY: the caller's promise.
        let mut made = Some(unsafe { self.make(raw) }?);
        // If another thread was faster, `made` is dropped after the lock: the drop records an
        // event.
        let known = &mut write(&self.known);
        let stream = known.entry(key(raw)).or_insert_with(|| made.take().expect("taken once"));
        Ok(stream.clone())
    }

    /// # Safety
    /// As for [`get`](Self::get).
    #[cold]
    unsafe fn make(&self, raw: *mut c_void) -> Result<Stream> {
        match (self.device.backend(), key(raw)) {
            (Backend::Cpu, 0) => Ok(self.device.default_stream()?),
            (Backend::Cpu, _) => {
                let why =
                    format!("{raw:p} is given for a pool on the CPU, which has no CUDA streams; pass null");
                Err(Failure::argument("stream", why))
            }
            (_, PER_THREAD) => Err(Failure::argument(
                "stream",
                "it is cudaStreamPerThread, another stream in each thread; pass null or a stream of your own",
            )),
            (_, key) => {
                // SAFETY: the caller's promise. 0 is the legacy default stream, which always lives.
                Ok(unsafe { Stream::from_raw(&self.device, without_provenance_mut(key)) }?)
            }
        }
    }

    /// Drops the stream of a handle.
    pub fn forget(&self, raw: *mut c_void) {
        let stream = write(&self.known).remove(&key(raw));
        // Outside the lock: it may record an event.
        drop(stream);
    }
}
