//! Memory of the driver's stream-ordered pools.
//!
//! ```text
//! live   address ─► base, layout          checked by every free; the memory that launches may use
//! pool   | used | free, pending | free |  in the driver; free memory above the release threshold
//!                                         is released at a synchronisation
//! ```
//!
//! I1: `live` contains exactly the blocks that the driver allocated and that are not yet freed, and
//! the device's registry contains the same blocks. I2: a block is removed from both before the
//! driver may reuse its address: before the driver's free, and it is restored if that fails.
//!
//! A short lock guards `live`. The driver is called without it, and orders the blocks itself.

mod builder;
mod control;
mod pool;
#[cfg(test)]
mod tests;

pub use builder::DriverPoolBuilder;
pub use control::{DriverPoolStats, ReusePolicies};
pub use pool::DriverPool;
