//! The checks between rounds and at the end of a run.

use super::compare::{DeviceResult, check_on_host, record_grid, report_differences};
use super::finding::{FindingKind, RoundState, Table};
use super::plan::BLOCK_THREADS;
use super::run::{Run, Streams};
use super::subject::Subject;
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
    fn state<'b>(&'b self, records: &'b [Record], table: Table) -> RoundState<'b> {
        RoundState { plan: &self.plan, round: self.round, pool_start: self.subject.start(), records, table }
    }

    /// Adds a finding about the pool, not about a block.
    fn add(&mut self, kind: FindingKind, message: String) {
        let finding = self.state(&[], Table::Slots).finding(kind, None, message);
        self.report.add_one(finding);
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
        let state = self.state(&records, Table::Slots);
        let breaches: Vec<_> = log.breaches().map(|breach| state.breach(&breach)).collect();
        let named = faults.first.iter().map(|fault| state.fault(fault)).collect();
        self.report.add(breaches, log.total());
        self.report.add(named, faults.count);
        Ok(())
    }

    /// Compares all live blocks: always on the device; on the host if `needed`, if the device or
    /// the allocator's count found a difference, or if the time share allows it.
    pub(super) fn check_all(&mut self, needed: bool) -> Result<()> {
        let stream = &self.streams[0];
        let result =
            self.device_check.compare(self.module, stream, &self.tables.records, &mut self.report)?;
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
            let message = format!("{live} blocks are live, but the allocator's own count is different");
            self.add(FindingKind::CountMismatch, message);
        }
        Ok(())
    }

    /// Compares all blocks on the host, and compares them with the allocator's metadata.
    fn compare_all(&mut self, result: DeviceResult, records: &[Record], table: Table) -> Result<()> {
        // Not `self.state`, because the report is changed while the state is used.
        let (plan, round, pool_start) = (&self.plan, self.round, self.subject.start());
        let state = RoundState { plan, round, pool_start, records, table };
        let host = check_on_host(plan, &state, &mut self.report);
        report_differences(result, &host, &state, &mut self.report);
        let started = Instant::now();
        let account = self.subject.account(plan, &state)?;
        self.report.checked.metadata |= account.is_some();
        let account = account.unwrap_or_default();
        self.report.host_check_seconds += started.elapsed().as_secs_f64();
        self.report.lost_blocks += account.lost_blocks;
        self.report.wasted_bytes = self.report.wasted_bytes.max(account.wasted_bytes);
        self.report.add(account.findings, 0);
        Ok(())
    }

    /// Checks that no memory is left after allocation failed in all threads.
    pub(super) fn check_exhaustion(&mut self) -> Result<()> {
        let (live, max) = (self.report.live_blocks(), self.plan.records());
        let exhausted = self.subject.is_exhausted(&self.plan, live, max)?;
        self.note_exhaustion(exhausted, live, live < max);
        Ok(())
    }

    /// `failed`: at least one allocation failed.
    fn note_exhaustion(&mut self, exhausted: bool, live: u64, failed: bool) {
        if exhausted {
            self.report.exhaustions += u64::from(failed);
            return;
        }
        let max = self.subject.most_blocks(&self.plan);
        let message = format!(
            "allocation failed in every thread with {live} live blocks, but the pool has memory for {max} of the \
             largest size"
        );
        self.add(FindingKind::CountMismatch, message);
    }

    /// Checks that all memory is free after all blocks were freed.
    fn check_all_free(&mut self) -> Result<()> {
        let Some(take_all) = S::KERNELS.take_all else { return Ok(()) };
        let answer: DeviceBuffer<u64> = self.device.zeroed(1)?;
        // Declared after the buffer: waited for before it is dropped.
        let streams = Streams(vec![self.streams[0].clone()]);
        let args = (self.subject.handle(), answer.ptr());
        // SAFETY: nothing else uses the pool and the answer, which live until the stream is waited
        // for. The kernel requires no more (S2).
        unsafe { take_all.launch(&streams[0], self.module, &LaunchConfig::linear(1, 1), args) }?;
        streams[0].synchronize()?;
        self.report.checked.all_free = true;
        if answer.copy_to_vec()? != [1] {
            let all = Bytes(self.plan.pool_bytes);
            let message = format!(
                "all blocks were freed, but one allocation of all {all} fails: some memory is neither free nor live"
            );
            self.add(FindingKind::Lost, message);
            self.report.lost_blocks += 1;
        }
        Ok(())
    }

    /// Frees all blocks, then allocates and frees every block of the pool.
    pub(super) fn end(&mut self) -> Result<()> {
        if S::Handle::RECLAIMS {
            self.phase(Phase::Drain)?;
            self.check_online()?;
            return self.check_recovery(true);
        }
        if self.report.is_clean() { self.exhaust() } else { Ok(()) }
    }

    /// Checks that the pool is equivalent to a new one. All blocks have been freed.
    pub(super) fn check_recovery(&mut self, on_host: bool) -> Result<()> {
        self.check_all(on_host)?;
        self.check_all_free()?;
        if self.report.is_clean() { self.exhaust() } else { Ok(()) }
    }

    /// Exhausts the new pool. The number of allocated blocks is the reference for later
    /// exhaustions.
    pub(super) fn measure(&mut self) -> Result<()> {
        self.exhaust()?;
        self.subject.reset()
    }

    /// All threads allocate until allocation fails. The pool must allocate exactly as many blocks
    /// as it has.
    fn exhaust(&mut self) -> Result<()> {
        let max = self.subject.most_blocks(&self.plan);
        let of_records = record_grid(max)?;
        let out: DeviceBuffer<Record> = self.device.zeroed(max as usize)?;
        let count: DeviceBuffer<u64> = self.device.zeroed(1)?;
        // Declared after the buffers: waited for before they are dropped.
        let streams = Streams(vec![self.streams[0].clone()]);
        let stream = &streams[0];
        let grid = LaunchConfig::linear(self.plan.threads, BLOCK_THREADS);
        let args = (self.subject.handle(), self.plan.max_bytes, 1, out.slice(), count.ptr());
        // SAFETY: nothing else uses the pool and the two buffers, which live until the stream is
        // waited for. The kernel requires no more (S2).
        unsafe { S::KERNELS.exhaust.launch(stream, self.module, &grid, args) }?;
        stream.synchronize()?;
        let granted = count.copy_to_vec()?[0];
        let emptied = self.subject.is_emptied(&self.plan, granted)?;
        self.note_exhaustion(emptied, granted, true);
        let result = self.device_check.compare(self.module, stream, &out, &mut self.report)?;
        self.compare_all(result, &out.copy_to_vec()?, Table::Exhausted)?;
        if S::Handle::RECLAIMS && self.report.is_clean() {
            let args = (self.subject.handle(), out.slice(), granted);
            // SAFETY: the records are unused blocks of this pool, and nothing else runs. The kernel
            // requires no more (S2).
            unsafe { S::KERNELS.free_all.launch(stream, self.module, &of_records, args) }?;
            stream.synchronize()?;
            let result = self.device_check.compare(self.module, stream, &out, &mut self.report)?;
            self.compare_all(result, &out.copy_to_vec()?, Table::Exhausted)?;
            self.check_all_free()?;
        }
        Ok(())
    }
}
