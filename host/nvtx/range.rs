//! Ranges: named intervals of a thread, which nest.

use super::text::c_string;
use super::tool::{RangeTool, tool};
use std::ffi::CStr;
use std::marker::PhantomData;

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
