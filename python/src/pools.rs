//! An open pool: what the Python classes of pools share.

use crate::backing::Backing;
use crate::convert::layout;
use crate::failure::Result;
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use warpheap::host_pools::DeviceAllocator;

/// An open pool.
#[derive(Debug)]
pub struct Open<P> {
    pool: Arc<P>,
    backing: Arc<Backing>,
}

impl<P> Clone for Open<P> {
    fn clone(&self) -> Open<P> {
        Open { pool: self.pool.clone(), backing: self.backing.clone() }
    }
}

impl<P: DeviceAllocator + 'static> Open<P> {
    /// A pool with its log, if it has one.
    pub fn new(pool: P, log: Option<PathBuf>) -> Result<Open<P>> {
        let pool = Arc::new(pool);
        let backing = Arc::new(Backing::new(pool.clone(), log.as_deref())?);
        Ok(Open { pool, backing })
    }

    /// The allocator and its streams.
    pub fn backing(&self) -> &Arc<Backing> {
        &self.backing
    }

    /// The pool.
    pub fn pool(&self) -> &P {
        &self.pool
    }

    /// Frees a block by its address, size and alignment.
    pub fn free_raw(&self, ptr: u64, nbytes: u64, align: u64, raw: u64) -> Result<()> {
        let layout = layout(nbytes, align)?;
        // SAFETY: the pool rejects addresses that are not those of a live block with this layout
        // (P2). The documentation of `deallocate_raw` demands P1.
        unsafe { self.backing.deallocate(ptr, layout, raw) }
    }

    /// The pool's statistics and report as JSON.
    pub fn snapshot(&self, stats: impl Serialize) -> Result<String> {
        let snapshot = json!({ "stats": stats, "report": self.pool.report() });
        Ok(snapshot.to_string())
    }
}
