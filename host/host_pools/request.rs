//! Checks and messages that all allocators share.

use super::allocator::DeviceAllocator;
use super::tag::current_tag;
use crate::driver::{Device, Stream};
use crate::error::{Bytes, Error, InvalidConfig, InvalidFree, InvalidRequest, Result};
use crate::report::{Explanation, FailedRequest, MemoryReport, explanation};
use std::alloc::Layout;
use warpheap_device::kernel::DevicePtr;

/// The address as an integer.
#[inline]
pub(crate) fn address_of(ptr: DevicePtr<u8>) -> u64 {
    ptr.0.addr() as u64
}

/// The address as a pointer, which the host never dereferences.
#[inline]
pub(super) fn ptr_at(address: u64) -> DevicePtr<u8> {
    DevicePtr(std::ptr::with_exposed_provenance_mut(address as usize))
}

/// The layout as text for messages.
pub(super) fn describe(layout: Layout) -> String {
    format!("{} aligned to {}", Bytes(layout.size() as u64), layout.align())
}

/// The name of a pool in messages: its kind, with the name that the program gave it, if any.
pub(super) fn named(kind: &str, name: Option<&str>) -> String {
    name.map_or_else(|| format!("a {kind}"), |name| format!("the {kind} `{name}`"))
}

/// Adds the report of `pool` to the error of a failed allocation, if the pool was out of memory and
/// reports are on, and otherwise how to turn them on. An allocator that is the upstream of another
/// one adds nothing.
#[cold]
pub(super) fn explain(error: Error, layout: Layout, pool: &(impl DeviceAllocator + ?Sized)) -> Error {
    match explanation() {
        Explanation::ByCaller => error,
        Explanation::Hint => error.with_report_hint(),
        Explanation::Report => error.with_report(|device| {
            let (bytes, align) = (layout.size() as u64, layout.align() as u64);
            let tag = current_tag().as_deref().map(str::to_owned);
            let (device_free_bytes, device_total_bytes) = device.unzip();
            let report = MemoryReport { device_free_bytes, device_total_bytes, ..pool.report() };
            report.of_failure(FailedRequest { bytes, align, tag })
        }),
    }
}

/// Rejects a stream of another device and a size of zero. The name is read only for an error.
#[inline]
pub(super) fn check_request(
    allocator: &(impl AsRef<str> + ?Sized),
    device: &Device,
    layout: Layout,
    stream: &Stream,
) -> Result<()> {
    device.same_as(stream.device(), "the stream")?;
    if layout.size() > 0 { Ok(()) } else { Err(zero_size(allocator.as_ref(), layout)) }
}

#[cold]
fn zero_size(allocator: &str, layout: Layout) -> Error {
    invalid_layout(allocator, layout, "the size must be at least 1 B; skip allocations of zero bytes".into())
}

/// The error for a layout that the allocator never serves.
#[cold]
pub(super) fn invalid_layout(allocator: impl Into<String>, layout: Layout, why: String) -> Error {
    InvalidRequest::Layout { allocator: allocator.into(), requested: describe(layout), why }.into()
}

/// The error for an address or a layout that is not that of a live block.
#[cold]
pub(super) fn invalid_free(allocator: impl Into<String>, address: u64, why: String) -> Error {
    InvalidFree::Block { allocator: allocator.into(), address, why }.into()
}

/// The error for an invalid setting of a pool.
pub(super) fn invalid_setting(setting: &'static str, given: impl ToString, why: impl Into<String>) -> Error {
    InvalidConfig::pool(setting, given, why).into()
}

/// Frees memory of the upstream while a pool is dropped, with one retry. If both attempts fail, the
/// failure is logged and the memory stays with the upstream.
///
/// # Safety
/// P1 and P2 of [`DeviceAllocator::deallocate`].
pub(super) unsafe fn free_on_drop(
    upstream: &impl DeviceAllocator,
    ptr: DevicePtr<u8>,
    layout: Layout,
    stream: &Stream,
) {
    // SAFETY: the caller's promises P1 and P2. After a failure the block is still allocated.
    let free = || unsafe { upstream.deallocate(ptr, layout, stream) };
    if let Err(error) = free().or_else(|_| free()) {
        let bytes = layout.size();
        tracing::warn!(%error, bytes, address = address_of(ptr), "a dropped pool could not free its memory");
    }
}

/// Why a block cannot be freed with the layout `given`.
pub(super) fn wrong_layout(allocated: Layout, given: Layout) -> String {
    format!("it was allocated as {}, not as {}", describe(allocated), describe(given))
}

/// Why an address inside a block cannot be freed.
pub(super) fn inside_block(start: u64, layout: Layout) -> String {
    format!("it lies inside of the block of {} at {start:#x}", describe(layout))
}
