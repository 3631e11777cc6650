//! A stream on the CPU.

use super::copy_exclusion::CopyExclusion;
use super::pool::Pools;
use super::queue::{CpuEvent, Job, JobQueue, Panics};
use crate::driver::backend::{EventBackend, Launch, StreamBackend, Transfer, Transfers};
use crate::error::Result;
use crate::simt::{Executor, Stats};
use std::ffi::c_void;
use std::sync::Arc;

/// The host side of a stream.
pub(super) struct CpuStream {
    queue: Arc<JobQueue>,
    pools: Arc<Pools>,
}

impl CpuStream {
    pub fn start(
        executor: Arc<Executor>,
        exclusion: Arc<CopyExclusion>,
        pools: Arc<Pools>,
        panics: Arc<Panics>,
    ) -> Result<CpuStream> {
        Ok(CpuStream { queue: JobQueue::start(executor, exclusion, panics)?, pools })
    }

    pub fn queue(&self) -> &Arc<JobQueue> {
        &self.queue
    }
}

impl Drop for CpuStream {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Transfers for CpuStream {
    unsafe fn transfer(&self, transfer: Transfer) -> Result<()> {
        self.queue.push(Job::Memory(transfer))
    }
}

impl StreamBackend for CpuStream {
    unsafe fn launch(&self, launch: Launch<'_>) -> Result<()> {
        self.queue.push(Job::Kernel(launch.kernel, (launch.cpu_job)()))
    }

    fn record(&self) -> Result<Arc<dyn EventBackend>> {
        let event = Arc::new(CpuEvent::default());
        self.queue.push(Job::Record(event.clone()))?;
        Ok(event)
    }

    fn wait(&self, event: Arc<dyn EventBackend>) -> Result<()> {
        self.queue.push(Job::Wait(event))
    }

    fn synchronize(&self) -> Result<()> {
        let done = self.queue.synchronize();
        self.pools.settle();
        done
    }

    fn is_done(&self) -> Result<bool> {
        self.queue.is_done()
    }

    fn is_idle(&self) -> bool {
        self.queue.is_idle()
    }

    fn raw(&self) -> *mut c_void {
        std::ptr::null_mut()
    }

    fn cpu_stats(&self) -> Option<Stats> {
        self.queue.stats()
    }
}
