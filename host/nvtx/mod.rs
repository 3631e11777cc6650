//! NVTX: ranges and memory, named for NVIDIA's tools.
//!
//! NVTX 3 is an interface between a program and a tool that observes it, such as Nsight Systems or
//! compute-sanitizer (docs/guide/nvtx.md). With the feature `nvtx`, launches of kernels and slow
//! operations of caching pools are ranges in the domain `warpheap`, and the memory of device pools
//! has a name. [`Annotated`](crate::host_pools::Annotated) adds the calls and the blocks of a host
//! pool.
//!
//! ```text
//! NamedRange, Regions, DeviceMemory::label
//!     | tool(): two loads and two branches; the first call loads the library
//!     v
//! tool -> load -> tables, abi        with the feature `nvtx`
//! no_tool                            without: no call remains
//! ```
//!
//! Without a tool, a call costs two loads and two branches: whether the library was loaded, and
//! whether there is a tool.

#[cfg(feature = "nvtx")]
mod abi;
#[cfg(feature = "nvtx")]
mod load;
mod range;
mod regions;
#[cfg(feature = "nvtx")]
mod tables;
mod text;
#[cfg_attr(not(feature = "nvtx"), path = "no_tool.rs")]
mod tool;

pub(crate) use range::NamedRange;
pub(crate) use regions::{Region, Regions, memory_tool};
pub(crate) use text::{c_string, memory_name};
pub(crate) use tool::MemoryTool;
use tool::tool;

/// What the tool that observes this program records. Nothing without the feature `nvtx`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed {
    /// Ranges, as Nsight Systems does.
    pub ranges: bool,
    /// Memory, as compute-sanitizer does.
    pub memory: bool,
}

/// Whether a tool observes this program.
#[inline]
pub(crate) fn is_observed() -> bool {
    tool().is_some()
}

/// What the tool records that observes this program. The first call loads its library.
pub fn observed() -> Observed {
    tool().map_or(Observed::default(), |tool| Observed {
        ranges: tool.ranges().is_some(),
        memory: tool.memory().is_some(),
    })
}
