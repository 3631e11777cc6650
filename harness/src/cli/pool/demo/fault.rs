//! Faults that tests inject, to show that the checks of a demonstration can fail.

use std::alloc::Layout;
use warpheap_device::kernel::DevicePtr;

/// A fault of a pool, an arena, a buffer, a kernel or the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "the program injects no faults"))]
pub enum Fault {
    /// Blocks are aligned to 1.
    Misaligned,
    /// All blocks have the same address, or the second half of them those of the first.
    Overlapping,
    /// A failed call consumes memory.
    FailureConsumes,
    /// Frees do nothing.
    Keeps,
    /// Frees do nothing, and each block takes 32 MiB more.
    Leaks,
    /// Pools order their work on a stream of their own, and waits between streams do nothing.
    Unordered,
    /// The second block and all later ones come from other memory, and buffers move.
    Elsewhere,
    /// A reset does not check whether blocks are live.
    ResetsEarly,
    /// A reset does nothing.
    NeverResets,
    /// An arena has 64 B.
    Small,
    /// An arena has twice the bytes.
    Large,
    /// Memory is never trimmed, nor a buffer shrunk.
    NeverTrims,
    /// The last word of a buffer is missing.
    Short,
    /// The threads that only pad the grid allocate, too.
    FullGrid,
    /// Fill kernels omit the last word.
    ForgottenWord,
    /// All streams are the same stream.
    OneStream,
}

/// The first block of a stage, and how often it was allocated.
#[derive(Clone, Copy)]
pub struct First {
    pub block: DevicePtr<u8>,
    pub layout: Layout,
    pub times: usize,
}
