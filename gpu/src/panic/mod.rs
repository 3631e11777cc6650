//! Panics of kernels on a GPU, for the host to report.
//!
//! A module of kernels has the variable [`SYMBOL`]. The host writes [`PanicSettings`] to it when it
//! loads the module: the address of a [`PanicRecord`] in memory of the host that the device can
//! access, the number of the module, and whether a panic ends the grid. The host can read the
//! record even after a trap, when the memory of the device is lost.
//!
//! A thread that panics counts itself in the record. The first one also describes itself there:
//! file, line, column, thread and block, and with the feature `panic-message` the message. Then the
//! thread ends. The other threads continue.
//!
//! Without a record, a panic traps: the host loaded the module by other means than
//! `warpheap::Device`.
//!
//! On the CPU, the executor reports panics itself.

mod record;
mod text;
#[cfg(all(target_arch = "nvptx64", feature = "panic-handler"))]
mod thread_end;

#[cfg(not(target_arch = "nvptx64"))]
pub use record::RecordedPanic;
pub use record::{ORDERINGS, PanicRecord};
#[cfg(all(target_arch = "nvptx64", feature = "panic-handler"))]
pub(crate) use thread_end::end;

/// The name of the variable in a module with the panic handler of this crate.
pub const SYMBOL: &str = "warpheap_panics";

/// The value of the variable [`SYMBOL`]. All zeros: there is no record. Only the host writes it,
/// while no kernel of the module runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PanicSettings {
    /// The address of the record on the device.
    pub record: u64,
    /// The number of the module, by which the host finds its kernels.
    pub module: u64,
    /// Whether a panic ends the grid (1) or only its thread (0).
    pub ends_grid: u64,
}

const _: () = assert!(size_of::<PanicSettings>() == 24 && align_of::<PanicSettings>() == 8);
