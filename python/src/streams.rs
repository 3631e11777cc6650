//! One stream of the library for each raw stream that a program passes.
//!
//! A pool keeps a cache for each stream, by the stream's id. `Stream::from_raw` returns a new id in
//! each call, so the streams are kept.

use crate::failure::Result;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use warpheap::{Backend, Device, Stream};

/// The streams of a pool.
#[derive(Debug)]
pub struct Streams {
    device: Device,
    by_raw: Mutex<HashMap<u64, Stream>>,
}

impl Streams {
    /// No streams yet.
    pub fn new(device: &Device) -> Streams {
        Streams { device: device.clone(), by_raw: Mutex::default() }
    }

    /// The stream of a `CUstream`. On the CPU, each number is a stream of its own, and 0 is the
    /// default stream.
    pub fn get(&self, raw: u64) -> Result<Stream> {
        let mut streams = self.lock();
        if let Some(stream) = streams.get(&raw) {
            return Ok(stream.clone());
        }
        let stream = match (self.device.backend(), raw) {
            // SAFETY: the documentation of the pools demands that the stream is live until the pool
            // is closed or forgets it, and is not captured.
            (Backend::Cuda, _) => unsafe { Stream::from_raw(&self.device, raw as *mut _) },
            (_, 0) => self.device.default_stream(),
            _ => self.device.stream(),
        }?;
        Ok(streams.entry(raw).or_insert(stream).clone())
    }

    /// Forgets a stream. The pool then reuses its memory on other streams.
    pub fn forget(&self, raw: u64) {
        // Dropped after the lock: the pool is notified.
        let stream = self.lock().remove(&raw);
        drop(stream);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Stream>> {
        self.by_raw.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
