//! The panic handler of kernels.

use super::{PanicRecord, PanicSettings};
use crate::thread;
use core::cell::UnsafeCell;
use core::panic::PanicInfo;

/// The settings of this module. All zeros until the host writes them.
#[repr(transparent)]
struct Settings(UnsafeCell<PanicSettings>);

// SAFETY: threads only read it; the host writes it while no kernel of the module runs.
unsafe impl Sync for Settings {}

#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "its name in a module")]
static warpheap_panics: Settings =
    Settings(UnsafeCell::new(PanicSettings { record: 0, module: 0, ends_grid: 0 }));

/// Records the panic and ends the thread, or the grid if the settings say so. Traps if there is no
/// record. Inlined, so that the functions of core that panic call no function: they would save
/// registers.
#[inline(always)]
pub(crate) fn end(info: &PanicInfo<'_>) -> ! {
    // SAFETY: no thread writes it, and the host only while no kernel of the module runs.
    let settings = unsafe { *warpheap_panics.0.get() };
    let record = settings.record as *const PanicRecord;
    // SAFETY: null, or a record that the host keeps while the module is loaded.
    let (Some(record), Some(at)) = (unsafe { record.as_ref() }, info.location()) else { thread::trap() };
    let epoch = record.add(&settings, at, |to| {
        #[cfg(feature = "panic-message")]
        let _ = core::fmt::write(to, format_args!("{}", info.message()));
        #[cfg(not(feature = "panic-message"))]
        let _ = to;
    });
    if settings.ends_grid != 0 {
        record.end_grid(epoch);
        thread::trap();
    }
    thread::exit()
}
