//! Memory allocation inside GPU kernels, in Rust.
//!
//! A kernel crate depends only on this crate. The same source runs in three places:
//!
//! | where | atomics | warps |
//! |---|---|---|
//! | `nvptx64-nvidia-cuda` | PTX instructions with explicit ordering and scope | the hardware's |
//! | the host | core's atomics | those of the installed [`machine::Machine`]; one lane if none is |
//! | the host under `--cfg loom` | loom's | one lane |
//!
//! Only [`sync`], [`warp`], [`thread`], [`shared`] and [`mod@kernel`] differ between them.
//! Everything above is common code.
//!
//! Layers, each using only those before it: [`units`], [`machine`] and the trait
//! [`Kernel`](kernel::Kernel), which are those of the crate `warpheap-machine`; [`mod@kernel`],
//! `spill` → [`sync`], [`warp`], [`thread`], [`shared`] → `lanes`, [`fault`], [`mod@panic`] →
//! [`scans`] → [`bump`], [`freelist`], [`heap`] → [`mod@alloc`], [`global`] → [`check`]. `runtime`
//! has C functions that a GPU has no library for.
#![no_std]
#![warn(missing_debug_implementations)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(abi_unadjusted, asm_experimental_arch, link_llvm_intrinsics, linkage)
)]
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]

#[cfg(all(loom, not(feature = "loom")))]
compile_error!("`--cfg loom` needs the feature `loom`, which brings the model checker");

#[cfg(not(target_arch = "nvptx64"))]
extern crate std;

/// For code that unit tests share with the other tests.
#[cfg(all(test, not(loom)))]
extern crate self as warpheap_device;

#[doc(hidden)]
pub mod __private;
pub mod alloc;
pub mod bump;
pub mod check;
pub mod fault;
pub mod freelist;
pub mod global;
pub mod heap;
pub mod kernel;
mod lanes;
#[doc(hidden)]
pub use lanes::selftest as lane_sums;
pub mod panic;
#[cfg(any(target_arch = "nvptx64", all(test, not(loom))))]
mod runtime;
pub mod scans;
pub mod shared;
mod spill;
pub mod sync;
#[cfg(all(test, not(loom)))]
mod test_lanes;
pub mod thread;
pub mod warp;
#[cfg(not(target_arch = "nvptx64"))]
#[doc(inline)]
pub use warpheap_machine::machine;
#[doc(inline)]
pub use warpheap_machine::units;

/// A panic in a kernel is recorded for the host and ends its thread: see [`panic`](mod@panic).
#[cfg(all(target_arch = "nvptx64", feature = "panic-handler"))]
#[panic_handler]
#[expect(
    unused_attributes,
    reason = "rustc warns that it has no effect, but with it LLVM inlines the function"
)]
#[inline(always)]
fn panic_handler(info: &core::panic::PanicInfo<'_>) -> ! {
    panic::end(info)
}
