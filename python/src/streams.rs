//! One stream of the library for each raw stream that a program passes.
//!
//! A pool keeps a cache for each stream, by the stream's id. `Stream::from_raw` returns a new id in
//! each call, so the streams are kept.

use crate::arguments::RawStream;
use crate::failure::{Failure, Result};
use crate::stream_handle::canonical;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use warpheap::{Backend, Device, Stream};

/// The streams of a pool.
#[derive(Debug)]
pub struct Streams {
    device: Device,
    /// Few, so that a search is faster than a hash.
    by_raw: RwLock<Vec<(u64, Stream)>>,
}

impl Streams {
    /// No streams yet.
    pub fn new(device: &Device) -> Streams {
        Streams { device: device.clone(), by_raw: RwLock::default() }
    }

    /// The stream of a `CUstream`. On the CPU, each number is a stream of its own, and 0 is the
    /// default stream.
    pub fn get(&self, raw: u64) -> Result<Stream> {
        let raw = handle(self.device.backend(), raw)?;
        if let Some(stream) = find(&self.by_raw.read().unwrap_or_else(PoisonError::into_inner), raw) {
            return Ok(stream);
        }
        let mut streams = self.write();
        // Another thread may have added it in between.
        if let Some(stream) = find(&streams, raw) {
            return Ok(stream);
        }
        let stream = match (self.device.backend(), raw) {
            // SAFETY: the documentation of the pools demands that the stream is live until the pool
            // is closed or forgets it, and is not captured.
            (Backend::Cuda, _) => unsafe { Stream::from_raw(&self.device, raw as *mut _) },
            (_, 0) => self.device.default_stream(),
            _ => self.device.stream(),
        }?;
        streams.push((raw, stream.clone()));
        Ok(stream)
    }

    /// Forgets a stream. The pool then reuses its memory on other streams.
    pub fn forget(&self, raw: u64) -> Result<()> {
        let raw = handle(self.device.backend(), raw)?;
        let mut streams = self.write();
        let place = streams.iter().position(|(own, _)| *own == raw);
        let forgotten = place.map(|place| streams.swap_remove(place));
        // Dropped after the lock: the pool is notified.
        drop(streams);
        drop(forgotten);
        Ok(())
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<(u64, Stream)>> {
        self.by_raw.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle by which a pool knows the stream `raw`.
fn handle(backend: Backend, raw: u64) -> Result<u64> {
    if backend != Backend::Cuda {
        return Ok(raw);
    }
    canonical(raw).map_err(|why| Failure::invalid_request(why.into()))
}

fn find(streams: &[(u64, Stream)], raw: u64) -> Option<Stream> {
    streams.iter().find(|(own, _)| *own == raw).map(|(_, stream)| stream.clone())
}

/// The stream objects that a program passed. They live as long as the pool uses their streams.
#[derive(Debug)]
pub struct Owners {
    backend: Backend,
    by_raw: Mutex<HashMap<u64, Py<PyAny>>>,
}

impl Owners {
    /// No objects yet.
    pub fn new(backend: Backend) -> Owners {
        Owners { backend, by_raw: Mutex::default() }
    }

    /// Keeps the object of a stream alive. Returns the raw stream.
    pub fn keep(&self, py: Python<'_>, stream: &RawStream) -> Result<u64> {
        let raw = handle(self.backend, stream.raw)?;
        if let Some(owner) = &stream.owner {
            self.lock(py).entry(raw).or_insert_with(|| owner.clone_ref(py));
        }
        Ok(raw)
    }

    /// Releases the object of a stream.
    pub fn forget(&self, py: Python<'_>, raw: u64) -> Result<()> {
        let raw = handle(self.backend, raw)?;
        // Dropped after the lock: this may run Python code.
        let owner = self.lock(py).remove(&raw);
        drop(owner);
        Ok(())
    }

    /// Only threads with the GIL take the lock, and hold it only for a change of the map.
    fn lock(&self, _py: Python<'_>) -> MutexGuard<'_, HashMap<u64, Py<PyAny>>> {
        self.by_raw.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
