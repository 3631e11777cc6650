//! Panics of the kernels of a context: the record that they write, in pinned memory of the host.
//!
//! A panic that ended only threads stays in the record until it is reported. A panic that ended the
//! grid stays there for good: it explains why every later call fails.

use super::sys::{Api, SUCCESS};
use crate::driver::backend::Function;
use crate::driver::panics::panicked;
use crate::error::{Error, KernelFault, Result};
use crate::lock::lock;
use crate::simt::Panic;
use cudarc::driver::sys::CU_MEMHOSTALLOC_DEVICEMAP;
use std::collections::BTreeSet;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use warpheap_device::panic::{PanicRecord, PanicSettings, RecordedPanic};

/// What is unusable after a panic that ended the grid.
const DEAD: &str = "the grid ended, and every later call on this device fails too, so end the process";

/// `CUDA_ERROR_LAUNCH_FAILED`, the status after a trap.
const TRAPPED: u32 = cudarc::driver::sys::CUresult::CUDA_ERROR_LAUNCH_FAILED as u32;

/// The record of a context. The context must outlive it.
pub(super) struct Panics {
    record: NonNull<PanicRecord>,
    /// The address of the record on the device.
    address: u64,
    modules: AtomicUsize,
    /// Its lock also excludes concurrent reports.
    known: Mutex<Known>,
}

/// What the host knows about panics, besides the record.
#[derive(Default)]
struct Known {
    /// The kernels that were launched from the loaded modules, with the numbers of the modules.
    launched: BTreeSet<(u64, &'static str)>,
    /// The last description that was reported. A grid can end because of a panic for which that
    /// description stands.
    reported: Option<RecordedPanic>,
}

// SAFETY: every access to the record is atomic, and it is pinned memory of the host.
unsafe impl Send for Panics {}
// SAFETY: as for `Send`; `known` excludes concurrent reports.
unsafe impl Sync for Panics {}

impl Panics {
    /// A new record. The context is current. `None` if the driver has no pinned memory for it: a
    /// panic then traps.
    pub fn new(api: &'static Api) -> Option<Panics> {
        let (mut host, mut address) = (null_mut(), 0);
        let bytes = size_of::<PanicRecord>();
        // SAFETY: the driver writes the address of the memory to `host`.
        let status = unsafe { (api.mem_host_alloc)(&mut host, bytes, CU_MEMHOSTALLOC_DEVICEMAP) };
        let record = NonNull::new(host.cast::<PanicRecord>()).filter(|_| status == SUCCESS);
        let Some(record) = record else {
            tracing::warn!(status, "no pinned memory for reports of panics: panics of kernels trap");
            return None;
        };
        // SAFETY: new memory of the record's size, aligned to a page.
        unsafe { record.write(PanicRecord::empty()) };
        // SAFETY: mapped memory of the driver, which writes its address on the device to `address`.
        let status = unsafe { (api.mem_host_get_device_pointer)(&mut address, host, 0) };
        let panics = Panics { record, address, modules: AtomicUsize::new(1), known: Mutex::default() };
        if status == SUCCESS {
            return Some(panics);
        }
        tracing::warn!(status, "the device cannot access pinned memory: panics of kernels trap");
        // SAFETY: allocated above; no device has its address.
        unsafe { panics.free(api) };
        None
    }

    /// Frees the record.
    ///
    /// # Safety
    /// The context is current. No kernel of a module with this record runs, now or later, and the
    /// record is not used any more.
    pub unsafe fn free(&self, api: &Api) {
        // SAFETY: allocated by `new`; the caller promises that nothing uses it any more.
        let status = unsafe { (api.mem_free_host)(self.record.as_ptr().cast()) };
        if status != SUCCESS {
            tracing::warn!(status, "the pinned memory for reports of panics could not be freed");
        }
    }

    /// The settings of a new module. Its panics end their threads.
    pub fn settings(&self) -> PanicSettings {
        // ordering: relaxed; only uniqueness matters.
        let module = self.modules.fetch_add(1, Ordering::Relaxed) as u64;
        PanicSettings { record: self.address, module, ends_grid: 0 }
    }

    /// A kernel is about to be launched. Notes its name at the first launch.
    pub fn launches(&self, function: &Function, kernel: &'static str) {
        // ordering: acquire; pairs with the release below: the name is noted.
        if !function.launched.load(Ordering::Acquire) {
            self.launched(function.module, kernel);
            // ordering: release; pairs with the acquire above.
            function.launched.store(true, Ordering::Release);
        }
    }

    fn launched(&self, module: u64, kernel: &'static str) {
        lock(&self.known).launched.insert((module, kernel));
    }

    /// Forgets the kernels of a module that is unloaded, unless a panic of them is to be reported.
    pub fn unloaded(&self, module: u64) {
        let mut known = lock(&self.known);
        if self.record().peek().is_none_or(|panic| panic.module != module) {
            known.launched.retain(|(of, _)| *of != module);
        }
    }

    fn record(&self) -> &PanicRecord {
        // SAFETY: live until `free`.
        unsafe { self.record.as_ref() }
    }

    /// Returns the panics since the last report as an error, if they ended only threads.
    pub fn report(&self) -> Result<()> {
        let record = self.record();
        if !record.is_pending() {
            return Ok(());
        }
        let mut known = lock(&self.known);
        let explains = |panic: &RecordedPanic| panic.ends_grid || panic.number == record.ended();
        if record.peek().is_none_or(|panic| explains(&panic)) {
            return Ok(());
        }
        let Some(panic) = record.take() else { return Ok(()) };
        let error = error(&known.launched, &panic);
        known.reported = Some(panic);
        Err(error)
    }

    /// The panic that caused `error`, if it ended the grid, or else `error`. If another panic was
    /// not reported yet, the description is that of the other, and counts this one.
    pub fn explain(&self, cause: Error) -> Error {
        if !matches!(cause, Error::KernelFault(KernelFault::Cuda { code: TRAPPED, .. })) {
            return cause;
        }
        let (record, known) = (self.record(), lock(&self.known));
        let panics = record.peek().into_iter().chain(known.reported.clone());
        let panic = panics.into_iter().find(|panic| panic.ends_grid || panic.number == record.ended());
        panic.map_or(cause, |panic| error(&known.launched, &RecordedPanic { ends_grid: true, ..panic }))
    }
}

fn error(launched: &BTreeSet<(u64, &'static str)>, panic: &RecordedPanic) -> Error {
    let kernels = launched.iter().filter(|(module, _)| *module == panic.module);
    let RecordedPanic { file, line, column, thread, block, message, others, ends_grid, .. } = panic.clone();
    let mut described = Panic::default();
    (described.file, described.line, described.column) = (file, line, column);
    (described.thread, described.block) = (thread, block.into());
    (described.message, described.others, described.ended_grid) = (message, others, ends_grid);
    panicked(&kernels.map(|(_, kernel)| *kernel).collect(), described, DEAD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::Location;

    /// A record in memory of the program. Not freed.
    fn panics() -> Panics {
        let record = NonNull::from_mut(Box::leak(Box::new(PanicRecord::empty())));
        Panics { record, address: 0x40, modules: AtomicUsize::new(1), known: Mutex::default() }
    }

    /// The error of a call of the driver.
    fn cause(code: u32) -> Error {
        KernelFault::Cuda { call: "cuX", code, name: String::new(), detail: String::new() }.into()
    }

    #[test]
    fn a_report_names_the_kernels_of_the_module() {
        let panics = panics();
        panics.report().unwrap();
        let (first, second) = (panics.settings(), panics.settings());
        assert_eq!((first.record, second.ends_grid), (0x40, 0));
        panics.launched(first.module, "mine");
        panics.launched(second.module, "another");
        for _ in 0..3 {
            panics.record().add(&first, Location::caller(), |_| ());
        }
        let text = panics.report().unwrap_err().to_string();
        assert!(text.starts_with("kernel `mine` panicked at host/driver/cuda/panics.rs:"), "{text}");
        assert!(text.contains(", thread 0 of block 0, and 2 others; these threads ended"), "{text}");
        panics.report().unwrap();

        // A kernel that was launched before the report panics after it, beside another.
        panics.launched(first.module, "new");
        panics.record().add(&first, Location::caller(), |_| ());
        let text = panics.report().unwrap_err().to_string();
        assert!(text.starts_with("one of the kernels `mine`, `new` panicked at "), "{text}");
    }

    #[test]
    fn a_module_is_forgotten_unless_its_panic_is_pending() {
        let panics = panics();
        let modules = [panics.settings(), panics.settings()];
        modules.iter().for_each(|settings| panics.launched(settings.module, "mine"));
        panics.record().add(&modules[0], Location::caller(), |_| ());
        modules.iter().for_each(|settings| panics.unloaded(settings.module));
        assert_eq!(lock(&panics.known).launched.len(), 1);
        assert!(panics.report().unwrap_err().to_string().starts_with("kernel `mine` panicked at "));
    }

    #[test]
    fn a_trap_is_explained_by_a_panic_that_ended_the_grid() {
        let panics = panics();
        let settings = PanicSettings { ends_grid: 1, ..panics.settings() };
        assert!(panics.explain(cause(TRAPPED)).to_string().contains("cuX"), "no panic");
        panics.record().add(&settings, Location::caller(), |_| ());
        panics.report().unwrap();
        for _ in 0..2 {
            let error = panics.explain(cause(TRAPPED));
            assert!(error.is_fatal() && error.to_string().ends_with(DEAD), "{error}");
        }
        assert!(panics.explain(cause(700)).to_string().contains("cuX"), "another fault");
    }

    /// The panic of a thread alone is described, and is reported before the trap or not. Then a
    /// panic ends the grid.
    #[test]
    fn a_trap_is_explained_by_a_description_that_counts_its_panic() {
        for is_reported in [false, true] {
            let panics = panics();
            let thread = panics.settings();
            let grid = PanicSettings { ends_grid: 1, ..panics.settings() };
            panics.launched(thread.module, "mine");
            panics.record().add(&thread, Location::caller(), |_| ());
            let number = panics.record().add(&grid, Location::caller(), |_| ());
            if is_reported {
                assert!(!panics.report().unwrap_err().is_fatal());
            }
            panics.record().end_grid(number);
            panics.report().unwrap();
            for _ in 0..2 {
                let error = panics.explain(cause(TRAPPED));
                let text = error.to_string();
                assert!(error.is_fatal() && text.contains(", and 1 other; the grid ended"), "{text}");
                assert!(text.starts_with("kernel `mine` panicked at "), "{text}");
            }
        }
    }
}
