//! The streams that use a block besides the one that it is freed on.
//!
//! A pool must not reuse a block before the work that these streams have at the free. The stream of
//! the free should not wait for them: it may be ahead of them on purpose. So the block is freed on
//! a stream of its own, which waits for all of them, and the pool takes care of the rest.
//!
//! I1: `recorded` counts the entries of `by_block`. It changes under the lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use warpheap::{Device, Result, Stream};

/// The recorded streams of the live blocks of a pool.
#[derive(Debug)]
pub struct StreamUses {
    device: Device,
    recorded: AtomicUsize,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    by_block: HashMap<u64, Vec<Stream>>,
    /// The stream of the frees, made by the first one.
    frees: Option<Stream>,
}

impl StreamUses {
    /// No streams yet.
    pub fn new(device: &Device) -> StreamUses {
        StreamUses { device: device.clone(), recorded: AtomicUsize::new(0), blocks: Mutex::default() }
    }

    /// Records that work of `stream` uses the live block at `address`.
    pub fn record(&self, address: u64, stream: Stream) {
        let mut blocks = self.lock();
        let streams = blocks.by_block.entry(address).or_default();
        if streams.iter().all(|known| known.id() != stream.id()) {
            streams.push(stream);
        }
        self.recorded.store(blocks.by_block.len(), Relaxed);
    }

    /// Frees the block at `address` after the work of `stream` and of the recorded streams. `free`
    /// gets a stream that is ordered after it. After an error, the streams are still recorded.
    pub fn free(
        &self,
        address: u64,
        stream: &Stream,
        free: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<()> {
        // Relaxed: the caller orders a free of the block after the calls that recorded its streams.
        if self.recorded.load(Relaxed) == 0 {
            return free(stream);
        }
        let Some(mut users) = self.take(address) else { return free(stream) };
        // The free is in the order of this stream anyway.
        users.retain(|user| user.id() != stream.id());
        if users.is_empty() {
            return free(stream);
        }
        let freed = match self.after(stream, &users) {
            Ok(after) => free(&after),
            // One of the streams may not exist any more, but its work ends as that of the others.
            Err(_) => self.device.synchronize().and_then(|()| free(stream)),
        };
        if freed.is_err() {
            users.into_iter().for_each(|user| self.record(address, user));
        }
        freed
    }

    fn take(&self, address: u64) -> Option<Vec<Stream>> {
        let mut blocks = self.lock();
        let taken = blocks.by_block.remove(&address);
        self.recorded.store(blocks.by_block.len(), Relaxed);
        taken
    }

    /// A stream that waits for the work that these streams have now.
    fn after(&self, stream: &Stream, users: &[Stream]) -> Result<Stream> {
        let after = self.stream_of_frees()?;
        for user in std::iter::once(stream).chain(users) {
            after.wait(&user.record()?)?;
        }
        Ok(after)
    }

    fn stream_of_frees(&self) -> Result<Stream> {
        let mut blocks = self.lock();
        match &blocks.frees {
            Some(stream) => Ok(stream.clone()),
            None => Ok(blocks.frees.insert(self.device.stream()?).clone()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
