//! What the checks keep in device memory beside the pool.

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
    /// A map of `granules` granules of the pool at `pool_start`, in which no one holds anything.
    pub fn new(device: &Device, plan: &Plan, pool_start: u64) -> Result<Map> {
        let len = usize::try_from(plan.granules()).map_err(|_| Error::InvalidStress {
            what: format!("a pool of {} granules", plan.granules()),
            advice: "use a smaller pool".into(),
        })?;
        let (words, log) = (device.zeroed(len)?, device.zeroed(LOG_WORDS)?);
        Ok(Map { words, log, pool_start, granule_log2: plan.granule_log2 })
    }

    /// The map as kernels take it.
    pub fn handle(&self) -> Arg<OwnershipMap> {
        let (words, log) = (self.words.ptr().0.cast(), self.log.ptr().0.cast::<CheckLog>());
        // SAFETY: the buffers have one word a granule and the words of a log, and live as long as the run.
        let map = unsafe {
            OwnershipMap::from_raw_parts(
                words,
                log,
                self.pool_start,
                self.words.len() as u64,
                self.granule_log2,
            )
        };
        // SAFETY: the same.
        unsafe { Arg::new(map) }
    }

    /// The words of the log, when no kernel runs.
    pub fn read_log(&self) -> warpheap::Result<Vec<u64>> {
        self.log.copy_to_vec()
    }

    /// Makes all of it no one's again, on the stream.
    pub fn clear(&self, stream: &Stream) -> warpheap::Result<()> {
        // SAFETY: nothing else uses the map: the callers have waited for all kernels.
        unsafe { stream.fill_bytes(&self.words, 0) }?;
        // SAFETY: the same.
        unsafe { stream.fill_bytes(&self.log, 0) }
    }
}

/// Everything that the threads of a run share beside the pool.
pub(super) struct Tables {
    pub records: DeviceBuffer<Record>,
    pub map: Map,
    stripes: DeviceBuffer<u64>,
    /// One a thread: where blocks change hands.
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

    /// The records of one set, and the place of the first.
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

    /// Takes everything out of the cells, and waits for it.
    pub fn clear_cells(&self, stream: &Stream) -> warpheap::Result<()> {
        // SAFETY: nothing else uses the cells: the callers have waited for all kernels.
        unsafe { stream.fill_bytes(&self.cells, 0) }?;
        stream.synchronize()
    }

    /// What all threads have done since the beginning.
    pub fn counts(&self) -> Result<Counts> {
        Ok(Counts::sum(&self.stripes.copy_to_vec()?))
    }
}
