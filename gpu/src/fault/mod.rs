//! The log of faults on the device, which the host reads after the launch.
//!
//! ```text
//! FaultLog  | count | entry 0 | entry 1 | ... | entry 63 |
//! entry     | check, thread | block | address | detail | clock | has, SM |
//!           | word | entry of the slab | the same two about 1 ms later |
//! ```
//!
//! I1. `count` is the number of faults since the last reset; entries `0..min(count, 64)` hold the
//! first ones.
//! I2. Entry `i` is written by the thread that got `i` from its increment of `count`.
//!
//! The host reads after the kernel has ended, which orders every write before the read. Bounded:
//! the threads of the first 64 faults wait for about a millisecond, at most 2^12 naps, and read the
//! words again, which shows whether another thread was about to write them.

mod kinds;
mod log;

pub use kinds::{FaultCheck, FaultKind};
pub use log::{FAULT_ENTRIES, FAULT_LOG_WORDS, Fault, FaultLog, SeenWords};
