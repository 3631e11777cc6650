//! The checks between rounds and at the end of a run.

use super::census::{self, CensusResult};
use super::finding::{FindingKind, Narrator, Table};
use super::plan::BLOCK_THREADS;
use super::run::{Run, Streams};
use super::subject::{Subject, give_back};
use crate::Result;
use std::time::Instant;
use warpheap::Bytes;
use warpheap::driver::{DeviceBuffer, LaunchConfig};
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::check::log::LogView;
use warpheap_device::check::record::Record;
use warpheap_device::check::workload::Phase;

/// The host compares all blocks while this takes less than this fraction of the elapsed time.
const HOST_CHECK_SHARE: f64 = 0.25;

impl<S: Subject> Run<'_, S> {
    fn narrator<'b>(&'b self, records: &'b [Record]) -> Narrator<'b> {
        Narrator {
            plan: &self.plan,
            round: self.round,
            pool_start: self.subject.start(),
            records,
            table: Table::Slots,
        }
    }

    /// Reports what the checks in the kernels have found, and the misuse that the allocator has
    /// recorded.
    pub(super) fn check_online(&mut self) -> Result<()> {
        let words = self.tables.map.read_log()?;
        let log = LogView::new(&words).expect("the buffer is as long as a log");
        let records = if log.total() > 0 { self.tables.records.copy_to_vec()? } else { Vec::new() };
        let faults = self.subject.faults()?;
        self.report.checked.misuse |= faults.is_some();
        let faults = faults.unwrap_or_default();
        let narrator = self.narrator(&records);
        let breaches: Vec<_> = log.breaches().map(|breach| narrator.breach(&breach)).collect();
        let named = faults.first.iter().map(|fault| narrator.fault(fault)).collect();
        self.report.add(breaches, log.total());
        self.report.add(named, faults.count);
        Ok(())
    }

    /// Compares all live blocks: always on the device; on the host if `needed`, if the device or
    /// the allocator's count found a difference, or if the time share allows it.
    pub(super) fn check_all(&mut self, needed: bool) -> Result<()> {
        let stream = &self.streams[0];
        let result = self.census.on_device(self.module, stream, &self.tables.records, &mut self.report)?;
        let live = self.report.live_blocks();
        let counted = self.subject.agrees(live)?;
        self.report.checked.count |= counted.is_some();
        let counted = counted.unwrap_or(true);
        let agrees = result.is_clean() && result.checked == live && counted;
        let spent = self.report.host_check_seconds;
        let has_time = spent <= HOST_CHECK_SHARE * self.started.elapsed().as_secs_f64();
        if !(needed || has_time || !agrees) {
            return Ok(());
        }
        let started = Instant::now();
        let records = self.tables.records.copy_to_vec()?;
        self.report.host_check_seconds += started.elapsed().as_secs_f64();
        self.compare_all(result, &records, Table::Slots)?;
        if !counted && self.report.is_clean() {
            let message = format!("{live} blocks are live, and the allocator counts others");
            let finding = self.narrator(&records).finding(FindingKind::CountMismatch, None, message);
            self.report.add(vec![finding], 1);
        }
        Ok(())
    }

    /// Compares all blocks on the host, and compares them with the allocator's metadata.
    fn compare_all(&mut self, result: CensusResult, records: &[Record], table: Table) -> Result<()> {
        let (plan, round, pool_start) = (&self.plan, self.round, self.subject.start());
        let narrator = Narrator { plan, round, pool_start, records, table };
        let sorted = census::on_host(plan, &narrator, &mut self.report);
        census::compare(result, &sorted, &narrator, &mut self.report);
        let started = Instant::now();
        let account = self.subject.account(plan, &narrator)?;
        self.report.checked.metadata |= account.is_some();
        let account = account.unwrap_or_default();
        self.report.host_check_seconds += started.elapsed().as_secs_f64();
        let lost = account.lost_blocks;
        self.report.lost_blocks += lost;
        self.report.wasted_bytes = self.report.wasted_bytes.max(account.wasted_bytes);
        self.report.add(account.findings, 0);
        Ok(())
    }

    /// Checks that no memory is left after allocation failed in all threads.
    pub(super) fn check_exhaustion(&mut self) -> Result<()> {
        let (live, most) = (self.report.live_blocks(), self.plan.records());
        let exhausted = self.subject.is_exhausted(&self.plan, live, most)?;
        self.note_exhaustion(exhausted, live, live < most);
        Ok(())
    }

    /// `refused`: at least one allocation failed.
    fn note_exhaustion(&mut self, exhausted: bool, live: u64, refused: bool) {
        if exhausted {
            self.report.exhaustions += u64::from(refused);
            return;
        }
        let message = format!(
            "after every thread was refused, {live} blocks are live, of a pool of {}",
            self.subject.most_blocks(&self.plan)
        );
        let finding = self.narrator(&[]).finding(FindingKind::CountMismatch, None, message);
        self.report.add(vec![finding], 1);
    }

    /// Checks that all memory is free after all blocks were freed.
    fn check_all_free(&mut self) -> Result<()> {
        // SAFETY: the module is the subject's, and no kernel runs: all streams were waited for.
        let is_all_free = unsafe { self.subject.is_all_free(self.module, &self.streams[0]) }?;
        self.report.checked.all_free |= is_all_free.is_some();
        if is_all_free.unwrap_or(true) {
            return Ok(());
        }
        let message = format!(
            "everything was given back, but one allocation of all {} is refused: some of it is neither free nor \
             anyone's",
            Bytes(self.plan.pool_bytes)
        );
        let finding = self.narrator(&[]).finding(FindingKind::Lost, None, message);
        self.report.add(vec![finding], 1);
        self.report.lost_blocks += 1;
        Ok(())
    }

    /// Frees all blocks, then allocates and frees every block of the pool.
    pub(super) fn end(&mut self) -> Result<()> {
        if S::Handle::RECLAIMS {
            self.phase(Phase::Drain)?;
            self.check_online()?;
            self.check_all(true)?;
            self.check_all_free()?;
        }
        if self.report.is_clean() { self.empty_the_pool() } else { Ok(()) }
    }

    /// Checks that the pool is equivalent to a new one. All blocks have been freed.
    pub(super) fn check_recovery(&mut self) -> Result<()> {
        self.check_all(false)?;
        self.check_all_free()?;
        if self.report.is_clean() { self.empty_the_pool() } else { Ok(()) }
    }

    /// Exhausts the new pool. The number of allocated blocks is the reference for later
    /// exhaustions.
    pub(super) fn measure(&mut self) -> Result<()> {
        self.empty_the_pool()?;
        self.subject.reset()
    }

    /// All threads allocate until allocation fails. The pool must allocate exactly as many blocks
    /// as it has.
    fn empty_the_pool(&mut self) -> Result<()> {
        let most = self.subject.most_blocks(&self.plan);
        let out: DeviceBuffer<Record> = self.device.zeroed(most as usize)?;
        let count: DeviceBuffer<u64> = self.device.zeroed(1)?;
        // Declared after the buffers: waited for before they are dropped.
        let streams = Streams(vec![self.streams[0].clone()]);
        let stream = &streams[0];
        let grid = LaunchConfig::linear(self.plan.threads, BLOCK_THREADS);
        let args = (self.subject.handle(), self.plan.max_bytes, 1, out.slice(), count.ptr());
        // SAFETY: nothing else uses the pool and the two buffers, which live until the stream is
        // waited for.
        unsafe { stream.launch(self.module, S::GRAB, &grid, args) }?;
        stream.synchronize()?;
        let granted = count.copy_to_vec()?[0];
        let emptied = self.subject.is_emptied(&self.plan, granted)?;
        self.note_exhaustion(emptied, granted, true);
        let result = self.census.on_device(self.module, stream, &out, &mut self.report)?;
        self.compare_all(result, &out.copy_to_vec()?, Table::Grabbed)?;
        if S::Handle::RECLAIMS && self.report.is_clean() {
            give_back(&self.subject, self.module, stream, out.slice(), granted)?;
            let result = self.census.on_device(self.module, stream, &out, &mut self.report)?;
            self.compare_all(result, &out.copy_to_vec()?, Table::Grabbed)?;
            self.check_all_free()?;
        }
        Ok(())
    }
}
