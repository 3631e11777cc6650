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
//! tool -> load -> abi                with the feature `nvtx`
//! no_tool                            without: no call remains
//! ```
//!
//! Without a tool, a call costs two loads and two branches: whether the library was loaded, and
//! whether there is a tool.

pub(crate) use regions::{Region, Regions, memory_tool};
use std::ffi::{CStr, CString};
use std::marker::PhantomData;
pub(crate) use tool::MemoryTool;
use tool::{RangeTool, tool};

#[cfg(feature = "nvtx")]
mod abi;
#[cfg(feature = "nvtx")]
mod load;
mod regions;
#[cfg_attr(not(feature = "nvtx"), path = "no_tool.rs")]
mod tool;

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

// Ranges: named intervals of a thread, which nest.

/// A range of this thread, from its creation to its drop.
#[must_use = "the range ends when this is dropped"]
pub(crate) struct NamedRange {
    /// `None` if no tool records ranges.
    tool: Option<&'static RangeTool>,
    /// Ranges end on the thread on which they began.
    of_one_thread: PhantomData<*const ()>,
}

impl NamedRange {
    /// Begins a range. The tool shows `bytes`, unless it is 0.
    #[inline]
    pub fn new(name: &CStr, bytes: u64) -> NamedRange {
        let tool = tool().and_then(|tool| tool.ranges());
        if let Some(tool) = tool {
            tool.push(name, bytes);
        }
        NamedRange { tool, of_one_thread: PhantomData }
    }

    /// Begins a range with a name that is made only for a tool.
    #[inline]
    pub fn with_name(name: impl FnOnce() -> String) -> NamedRange {
        let tool = tool().and_then(|tool| tool.ranges());
        if let Some(tool) = tool {
            tool.push(&c_string(&name()), 0);
        }
        NamedRange { tool, of_one_thread: PhantomData }
    }
}

impl Drop for NamedRange {
    #[inline]
    fn drop(&mut self) {
        if let Some(tool) = self.tool {
            tool.pop();
        }
    }
}

// Text as a tool takes it.

/// compute-sanitizer accepts names of 1 to 49 characters.
const MAX_NAME: usize = 49;

/// `text` up to its first NUL.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// `text` as a name of memory: `?` replaces each character that is not printable ASCII, and a long
/// name is cut.
pub(crate) fn memory_name(text: &str) -> CString {
    let is_accepted = |c: &char| c.is_ascii_graphic() || *c == ' ';
    let accepted = |c: char| Some(c).filter(is_accepted).unwrap_or('?');
    let name: String = text.chars().take(MAX_NAME).map(accepted).collect();
    c_string(if name.is_empty() { "?" } else { &name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_memory_are_short_and_printable() {
        let name = |text| memory_name(text).into_string().unwrap();
        assert_eq!(name("layer 3 (a~)"), "layer 3 (a~)");
        assert_eq!(name("é\0\n\u{7f}x"), "????x");
        assert_eq!((name(""), name(&"x".repeat(50))), ("?".into(), "x".repeat(49)));
    }

    #[test]
    fn text_ends_at_a_nul() {
        assert_eq!((c_string("ab"), c_string("a\0b"), c_string("")), (c"ab".into(), c"a".into(), c"".into()));
    }
}
