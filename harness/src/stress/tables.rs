//! Device memory of the checks, in addition to the pool.

use super::plan::Plan;
use crate::{Error, Result};
use warpheap::driver::{Device, DeviceBuffer, Stream};
use warpheap_device::check::log::{CheckLog, LOG_WORDS};
use warpheap_device::check::ownership::OwnershipMap;
use warpheap_device::check::record::Record;
use warpheap_device::check::tally::{COUNTERS, Counts, STRIPES};
use warpheap_device::kernel::{Arg, DeviceSlice};

/// An ownership map and its log.
pub(super) struct Map {
    words: DeviceBuffer<u32>,
    log: DeviceBuffer<u64>,
    pool_start: u64,
    granule_log2: u32,
}

impl Map {
    /// A map of the granules of the pool at `pool_start`, without claims.
    pub fn new(device: &Device, plan: &Plan, pool_start: u64) -> Result<Map> {
        let len = usize::try_from(plan.granules()).map_err(|_| Error::InvalidStress {
            what: format!("a pool of {} granules", plan.granules()),
            advice: "use a smaller pool".into(),
        })?;
        let (words, log) = (device.zeroed(len)?, device.zeroed(LOG_WORDS)?);
        Ok(Map { words, log, pool_start, granule_log2: plan.granule_log2 })
    }

    /// The map as a kernel argument.
    pub fn handle(&self) -> Arg<OwnershipMap> {
        let (words, log) = (self.words.ptr().0.cast(), self.log.ptr().0.cast::<CheckLog>());
        // SAFETY: `words` has one word per granule, all 0 at first, and `log` has `LOG_WORDS`
        // words. Both live as long as the run.
        let map = unsafe {
            OwnershipMap::from_raw_parts(
                words,
                log,
                self.pool_start,
                self.words.len() as u64,
                self.granule_log2,
            )
        };
        // SAFETY: the buffers of the map outlive the kernels of the run.
        unsafe { Arg::new(map) }
    }

    /// The words of the log. Must not be called while a kernel runs.
    pub fn read_log(&self) -> warpheap::Result<Vec<u64>> {
        self.log.copy_to_vec()
    }

    /// Clears all claims and the log, on the stream.
    pub fn clear(&self, stream: &Stream) -> warpheap::Result<()> {
        // SAFETY: nothing else uses the map: the callers have waited for all kernels.
        unsafe { stream.fill_bytes(&self.words, 0) }?;
        // SAFETY: nothing else uses the log: the callers have waited for all kernels.
        unsafe { stream.fill_bytes(&self.log, 0) }
    }
}

/// The memory that the threads of a run share, in addition to the pool.
pub(super) struct Tables {
    pub records: DeviceBuffer<Record>,
    pub map: Map,
    stripes: DeviceBuffer<u64>,
    /// One per thread. Threads exchange tokens, and with them blocks, through cells.
    cells: DeviceBuffer<u64>,
}

impl Tables {
    pub fn new(device: &Device, plan: &Plan, pool_start: u64) -> Result<Tables> {
        Ok(Tables {
            records: device.zeroed(plan.records() as usize)?,
            map: Map::new(device, plan, pool_start)?,
            stripes: device.zeroed((STRIPES * COUNTERS) as usize)?,
            cells: device.zeroed(plan.threads as usize * plan.streams as usize)?,
        })
    }

    /// The records of one set, and the index of its first record.
    pub fn set(&self, plan: &Plan, set: u32) -> (DeviceSlice<Record>, u32) {
        let first = set * plan.set_len();
        let start = self.records.ptr().0.wrapping_add(first as usize);
        // SAFETY: a part of the buffer, which lives as long as the run.
        (unsafe { DeviceSlice::from_raw_parts(start, plan.set_len().into()) }, first)
    }

    pub fn stripes(&self) -> DeviceSlice<u64> {
        self.stripes.slice()
    }

    pub fn cells(&self) -> DeviceSlice<u64> {
        self.cells.slice()
    }

    /// Clears the cells and waits for the stream.
    pub fn clear_cells(&self, stream: &Stream) -> warpheap::Result<()> {
        // SAFETY: nothing else uses the cells: the callers have waited for all kernels.
        unsafe { stream.fill_bytes(&self.cells, 0) }?;
        stream.synchronize()
    }

    /// Total counts of all threads since the start of the run.
    pub fn counts(&self) -> Result<Counts> {
        Ok(Counts::sum(&self.stripes.copy_to_vec()?))
    }
}
