//! Names a pool, its calls and its blocks for NVIDIA's tools.
//!
//! ```text
//! Annotated        each call is a range, each live block is a region
//!   pool
//!     AnnotatedMemory    each block of the upstream is a heap
//!       upstream
//! ```
//!
//! A tool such as compute-sanitizer then reports accesses to memory of the pool outside of live
//! blocks. I1: a region is registered after its allocation and removed before its free: at no time
//! is a region registered for a block that another thread has allocated.

use crate::driver::{Device, Stream};
use crate::error::Result;
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::address_of;
use crate::host_pools::tag::current_tag;
use crate::nvtx::{MemoryTool, NamedRange, Region, Regions, c_string, is_observed, memory_tool};
use crate::report::MemoryReport;
use crate::usage::Usage;
use std::alloc::Layout;
use std::ffi::CString;
use std::fmt;
use std::sync::Arc;
use warpheap_device::kernel::DevicePtr;

/// Names a pool, its calls and its blocks for a tool that observes the program through NVTX.
///
/// Without the feature `nvtx`, it only forwards the calls. With it and without a tool, a call costs
/// two loads and two branches more. See the guide, `docs/guide/nvtx.md`.
///
/// - Nsight Systems shows each call as a range in the domain `warpheap`, with the name of the pool
///   and the requested bytes.
/// - compute-sanitizer's memcheck reports accesses to memory of the pool outside of its live
///   blocks, if the pool was built by [`over`](Self::over). Under such a tool, a free waits on the
///   host for its stream, because kernels that use the block may still be running. If that work
///   waits for something that the host does after the free, the program deadlocks.
///
/// ```
/// use std::alloc::Layout;
/// use warpheap::Device;
/// use warpheap::host_pools::{Annotated, BlockPool, DeviceAllocator, SyncDriverAllocator};
///
/// let (device, block) = (Device::cpu(), Layout::new::<[f32; 1024]>());
/// let stream = device.stream()?;
/// let memory = SyncDriverAllocator::new(&device);
/// let pool = Annotated::over("activations", memory, |memory| {
///     BlockPool::builder(block, 100).build_over(memory)
/// })?;
/// let ptr = pool.allocate(block, &stream)?;
/// // SAFETY: allocated above, and nothing uses it.
/// unsafe { pool.deallocate(ptr, block, &stream)? };
/// assert_eq!(pool.upstream().stats().free_blocks, 100);
/// # Ok::<(), warpheap::Error>(())
/// ```
pub struct Annotated<P> {
    pool: P,
    names: Arc<Names>,
}

/// The upstream of a pool that [`Annotated::over`] builds: each of its blocks is a heap of the
/// tool.
pub struct AnnotatedMemory<U> {
    upstream: U,
    names: Arc<Names>,
}

/// The texts of a pool, and what the tool knows about its memory.
struct Names {
    pool: String,
    allocate: CString,
    free: CString,
    regions: Regions,
}

impl Names {
    fn new(pool: &str) -> Arc<Names> {
        let text = |call: &str| c_string(&format!("{pool}: {call}"));
        Arc::new(Names {
            pool: pool.into(),
            allocate: text("allocate"),
            free: text("free"),
            regions: Regions::default(),
        })
    }
}

impl<P: DeviceAllocator> Annotated<P> {
    /// Names the calls of `pool`. Its blocks are not known to the tool.
    pub fn new(name: &str, pool: P) -> Annotated<P> {
        Annotated { pool, names: Names::new(name) }
    }

    /// Builds a pool over `upstream` by `build`, and names its calls, its memory and its blocks.
    ///
    /// `upstream` should be the driver's memory: compute-sanitizer accepts only whole allocations
    /// of the driver as heaps. Blocks have the [tags](crate::host_pools::tag()) of their
    /// allocations as names.
    ///
    /// # Errors
    /// The errors of `build`.
    pub fn over<U: DeviceAllocator>(
        name: &str,
        upstream: U,
        build: impl FnOnce(AnnotatedMemory<U>) -> Result<P>,
    ) -> Result<Annotated<P>> {
        let names = Names::new(name);
        let pool = build(AnnotatedMemory { upstream, names: names.clone() })?;
        Ok(Annotated { pool, names })
    }

    /// The pool.
    pub fn upstream(&self) -> &P {
        &self.pool
    }

    #[cold]
    fn allocate_observed(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let bytes = layout.size() as u64;
        let _range = NamedRange::new(&self.names.allocate, bytes);
        let ptr = self.pool.allocate(layout, stream)?;
        if let Some(tool) = memory_tool() {
            self.add_region(tool, address_of(ptr), Region { bytes, name: current_tag() });
        }
        Ok(ptr)
    }

    /// # Safety
    /// The promises of [`DeviceAllocator::deallocate`].
    #[cold]
    unsafe fn deallocate_observed(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        let _range = NamedRange::new(&self.names.free, layout.size() as u64);
        let tool = memory_tool();
        let removed = tool.and_then(|tool| self.remove_region(tool, address_of(ptr), stream));
        // SAFETY: the caller's promises P1 and P2.
        let done = unsafe { self.pool.deallocate(ptr, layout, stream) };
        if let (Err(_), Some(tool), Some(region)) = (&done, tool, removed) {
            self.add_region(tool, address_of(ptr), region);
        }
        done
    }

    /// Makes a live block known to the tool.
    fn add_region(&self, tool: &MemoryTool, address: u64, region: Region) {
        let (regions, mut region) = (&self.names.regions, Some(region));
        self.device().driver().with_context(&mut || {
            if let Some(region) = region.take() {
                regions.add_region(tool, address, region);
            }
        });
    }

    /// Waits for `stream` and removes a block that is about to be freed. Returns the block, or
    /// `None` if the tool does not know it.
    fn remove_region(&self, tool: &MemoryTool, address: u64, stream: &Stream) -> Option<Region> {
        let regions = &self.names.regions;
        if !regions.has_region(address) {
            return None;
        }
        // Kernels before the free may still use the block. A failure is reported to the owner of
        // the stream.
        let _ = stream.settle();
        let mut removed = None;
        self.device().driver().with_context(&mut || removed = regions.remove_region(tool, address));
        removed
    }
}

// SAFETY: A1 to A3 hold for the pool.
unsafe impl<P: DeviceAllocator> DeviceAllocator for Annotated<P> {
    fn device(&self) -> &Device {
        self.pool.device()
    }

    #[inline]
    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        if is_observed() {
            return self.allocate_observed(layout, stream);
        }
        self.pool.allocate(layout, stream)
    }

    #[inline]
    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        if is_observed() {
            // SAFETY: the caller's promises P1 and P2.
            return unsafe { self.deallocate_observed(ptr, layout, stream) };
        }
        // SAFETY: the caller's promises P1 and P2.
        unsafe { self.pool.deallocate(ptr, layout, stream) }
    }

    fn usage(&self) -> Usage {
        self.pool.usage()
    }

    fn report(&self) -> MemoryReport {
        self.pool.report()
    }
}

impl<U: DeviceAllocator> AnnotatedMemory<U> {
    /// The upstream of the pool.
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    fn add_heap(&self, address: u64, bytes: u64) {
        if let Some(tool) = memory_tool() {
            let Names { regions, pool, .. } = &*self.names;
            self.device().driver().with_context(&mut || regions.add_heap(tool, address, bytes, pool));
        }
    }

    fn remove_heap(&self, address: u64) -> Option<u64> {
        let (tool, mut removed) = (memory_tool()?, None);
        let mut remove = || removed = self.names.regions.remove_heap(tool, address);
        self.device().driver().with_context(&mut remove);
        removed
    }
}

// SAFETY: A1 to A3 hold for the upstream.
unsafe impl<U: DeviceAllocator> DeviceAllocator for AnnotatedMemory<U> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        let ptr = self.upstream.allocate(layout, stream)?;
        self.add_heap(address_of(ptr), layout.size() as u64);
        Ok(ptr)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        let removed = self.remove_heap(address_of(ptr));
        // SAFETY: the caller's promises P1 and P2.
        let done = unsafe { self.upstream.deallocate(ptr, layout, stream) };
        if let (Err(_), Some(bytes)) = (&done, removed) {
            self.add_heap(address_of(ptr), bytes);
        }
        done
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }

    fn report(&self) -> MemoryReport {
        self.upstream.report()
    }
}

impl<P: fmt::Debug> fmt::Debug for Annotated<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Annotated({:?}, {:?})", self.names.pool, self.pool)
    }
}

impl<U: fmt::Debug> fmt::Debug for AnnotatedMemory<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnnotatedMemory({:?}, {:?})", self.names.pool, self.upstream)
    }
}
