//! Heaps: their life, and allocations by the host.

use crate::arguments::{Out, Versioned, given, layout, options};
use crate::call::call;
use crate::device::wh_device;
use crate::failure::{Failure, Result};
use crate::lock::{read, write};
use crate::registry::Registry;
use crate::status::wh_status::{self, *};
use host::device_pools::Heap;
use host::error::{Bytes, Error, InvalidFree};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::RwLock;
use warpheap_c_device::handle_value;
use warpheap_device::heap::Heap as DeviceHeap;
use warpheap_device::kernel::DevicePtr;

/// A heap in device memory, which kernels allocate from.
pub struct wh_heap {
    _opaque: [u8; 0],
}

/// The handle of a heap by value, for kernels in CUDA C++: `warpheap.cuh` inlines the common case
/// of `wh_malloc` and `wh_free` for it. The words have no meaning for other code.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct wh_heap_value {
    /// Addresses on the device; the last one is that of `wh_heap_handle`.
    pub wide: [u64; 14],
    /// Sizes and counts.
    pub narrow: [u32; 8],
}

impl wh_heap_value {
    pub(crate) const NULL: wh_heap_value =
        wh_heap_value { wide: [0; DeviceHeap::ADDRESSES], narrow: [0; DeviceHeap::NUMBERS] };
}

/// A heap, as the host owns it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct wh_heap_owner {
    /// Identifies the heap; 0 is null. No id is used twice.
    pub id: u64,
}

/// Settings of a heap. Set all fields to 0, then `struct_bytes`, `bytes`, and others as needed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct wh_heap_options {
    /// `sizeof(wh_heap_options)`.
    pub struct_bytes: usize,
    /// Size of the heap in bytes; its maximum if it grows.
    pub bytes: u64,
    /// Initial amount of memory in bytes, at least 1 MiB; `wh_heap_grow` adds more. 0: all. Another
    /// value requires a GPU with virtual memory management.
    pub initial_bytes: u64,
    /// The largest size in bytes that a size class serves; larger requests take entire slabs. 0:
    /// three slabs.
    pub largest_class: u32,
    /// Maximum number of cursors per size class. 0: one per multiprocessor.
    pub shards: u32,
}

// SAFETY: `repr(C)`, and the first field is a `usize`.
unsafe impl Versioned for wh_heap_options {
    const NAME: &str = "wh_heap_options";
}

const NULL: wh_heap_owner = wh_heap_owner { id: 0 };
/// The alignment of a request that names none: that of `wh_malloc` in kernels.
const ALIGN: usize = 16;

pub(crate) static HEAPS: Registry<RwLock<Heap>> = Registry::new("heap", "heap", 0);

/// Calls `body` with the heap.
pub(crate) fn with_heap<R>(owner: wh_heap_owner, body: impl FnOnce(&Heap) -> Result<R>) -> Result<R> {
    let heap = HEAPS.get(owner.id)?;
    body(&read(&heap))
}

/// Creates a heap and returns its owner.
///
/// # Safety
/// `options` and `heap` are null or valid. A context of `device` outlives the heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_create(
    device: wh_device,
    options: *const wh_heap_options,
    heap: *mut wh_heap_owner,
) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(heap, "heap", NULL) }?;
        // SAFETY: the caller's promise.
        let given_options = unsafe { self::options(options, "options") }?;
        // SAFETY: the caller's promise.
        let device = unsafe { device.open() }?;
        let heap = build(given_options, &device)?;
        out.set(wh_heap_owner { id: HEAPS.insert(RwLock::new(heap)) });
        Ok(())
    })
}

fn build(options: wh_heap_options, device: &host::Device) -> Result<Heap> {
    let mut builder = Heap::builder(options.bytes);
    if let Some(bytes) = given(options.initial_bytes) {
        builder = builder.initial(bytes);
    }
    if let Some(bytes) = given(options.largest_class) {
        builder = builder.largest_class(bytes);
    }
    if let Some(shards) = given(options.shards) {
        builder = builder.shards(shards);
    }
    Ok(builder.build(device)?)
}

/// Destroys a heap, after all work of its device, and frees its memory. Pending kernels may use
/// the heap, later ones must not.
#[unsafe(no_mangle)]
pub extern "C" fn wh_heap_destroy(heap: wh_heap_owner) -> wh_status {
    call(|| HEAPS.remove(heap.id).map(drop))
}

/// Returns the heap in device memory: the argument for kernels, valid until the heap is destroyed.
///
/// # Safety
/// `handle` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_handle(heap: wh_heap_owner, handle: *mut *mut wh_heap) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(handle, "handle", null_mut()) }?;
        let address = with_heap(heap, |heap| Ok(heap.device_address()))?;
        out.set(address as *mut wh_heap);
        Ok(())
    })
}

/// Returns the handle of a heap by value, valid until the heap is destroyed.
///
/// # Safety
/// `value` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_get_value(heap: wh_heap_owner, value: *mut wh_heap_value) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(value, "value", wh_heap_value::NULL) }?;
        let Some(words) = with_heap(heap, |heap| Ok(handle_value(heap)))? else {
            let why = "libwarpheap was built with the feature `debug`, which changes the handle";
            return Err(Failure::new(WH_NOT_SUPPORTED, why));
        };
        let half = |i: usize| (words[DeviceHeap::ADDRESSES + i / 2] >> (32 * (i % 2))) as u32;
        let wide = std::array::from_fn(|i| words[i]);
        out.set(wh_heap_value { wide, narrow: std::array::from_fn(half) });
        Ok(())
    })
}

/// Waits for the device, then grows the memory of a heap to at least `bytes`, up to
/// `wh_heap_options.bytes`, and returns its size. `size` may be null. Later kernels can use the new
/// memory, through the same handle. No kernel may use the heap during the call.
///
/// # Safety
/// `size` is null or valid. No kernel uses the heap during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_grow(heap: wh_heap_owner, bytes: u64, size: *mut u64) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::optional(size, "size", 0) }?;
        let heap = HEAPS.get(heap.id)?;
        let grown = write(&heap).grow_to(bytes)?;
        out.iter().for_each(|out| out.set(grown));
        Ok(())
    })
}

/// Waits for the device, then frees all blocks of a heap and clears its faults. Blocks from before
/// must not be used any more. No kernel may use the heap during the call.
#[unsafe(no_mangle)]
pub extern "C" fn wh_heap_reset(heap: wh_heap_owner) -> wh_status {
    call(|| Ok(write(&*HEAPS.get(heap.id)?).reset()?))
}

/// Allocates a block of a heap for kernels, and waits for the device. `align` is a power of two up
/// to 2 MiB; 0 stands for 16. `wh_heap_deallocate` or `wh_free` in a kernel frees the block.
///
/// Launches a kernel. The first call on a GPU compiles it, which takes seconds.
///
/// # Safety
/// `block` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_allocate(
    heap: wh_heap_owner,
    bytes: usize,
    align: usize,
    block: *mut *mut c_void,
) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(block, "block", null_mut()) }?;
        let request = layout(bytes, align, ALIGN)?;
        let found = with_heap(heap, |heap| Ok(heap.allocate(request)?))?;
        let (bytes, align) = (Bytes(request.size() as u64), request.align());
        let text = || {
            format!(
                "a heap cannot allocate {bytes} aligned to {align}: it is out of memory; free blocks, or grow it; \
                 wh_heap_report describes what is in use"
            )
        };
        out.set(found.ok_or_else(|| Failure::new(WH_OUT_OF_MEMORY, text()))?.0.cast());
        Ok(())
    })
}

/// Frees a block that the host or a kernel allocated, and waits for the device. Launches a kernel,
/// as `wh_heap_allocate`. No kernel may use the block any more.
///
/// # Safety
/// No kernel uses the block any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_heap_deallocate(heap: wh_heap_owner, block: *mut c_void) -> wh_status {
    call(|| {
        with_heap(heap, |heap| {
            // SAFETY: the caller's promise. Wrong addresses are errors.
            let freed = unsafe { heap.deallocate(DevicePtr(block.cast())) };
            freed.map_err(|error| match error {
                Error::InvalidFree(InvalidFree::Heap { first, .. }) => {
                    let text = format!("a heap cannot free a block: {first}; free each block once");
                    Failure::new(WH_INVALID_FREE, text)
                }
                error => error.into(),
            })
        })
    })
}
