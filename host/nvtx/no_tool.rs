//! Without the feature `nvtx` there is no tool, and the compiler removes all calls.

use std::ffi::CStr;

/// There is none.
#[inline]
pub fn tool() -> Option<&'static Tool> {
    None
}

pub enum Tool {}
pub enum RangeTool {}
pub enum MemoryTool {}
#[derive(Clone, Copy)]
pub struct HeapHandle;

impl Tool {
    pub fn ranges(&self) -> Option<&RangeTool> {
        match *self {}
    }

    pub fn memory(&self) -> Option<&MemoryTool> {
        match *self {}
    }
}

impl RangeTool {
    pub fn push(&self, _message: &CStr, _bytes: u64) {
        match *self {}
    }

    pub fn pop(&self) {
        match *self {}
    }
}

impl MemoryTool {
    pub fn register_heap(&self, _address: u64, _bytes: u64, _name: &CStr) -> HeapHandle {
        match *self {}
    }

    pub fn unregister_heap(&self, _heap: HeapHandle) {
        match *self {}
    }

    pub fn register_region(&self, _heap: HeapHandle, _address: u64, _bytes: u64) {
        match *self {}
    }

    pub fn unregister_region(&self, _address: u64) {
        match *self {}
    }

    pub fn name(&self, _address: u64, _name: &CStr) {
        match *self {}
    }
}
