//! Names and sizes of pieces of shared memory.

/// The size of a word in bytes.
pub const WORD_BYTES: u32 = 8;

/// The largest amount of shared memory, in bytes, that a kernel may use without an opt-in through
/// the driver.
pub const MAX_BYTES: u32 = 48 << 10;

/// Names a piece of shared memory.
pub trait SharedMemory: 'static {
    /// The number of 64-bit words in the piece.
    const WORDS: u32;
}
