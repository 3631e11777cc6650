//! Simulation of the GPU for kernels that run on the host.
//!
//! The facade ([`sync`](crate::sync), [`warp`](crate::warp), [`thread`](crate::thread)) asks the
//! [`Machine`] installed on the calling OS thread for the coordinates of the running lane, and
//! passes every collective to it. An executor installs a machine with [`install`] and runs lanes
//! under it. Without a machine, the calling OS thread is the only lane of the only warp of a grid
//! of one block.

mod install;
mod interface;
mod shared;

pub use install::{Installed, install, outside_lane, runs_a_lane, stand_at};
pub(crate) use install::{at, step, with};
pub use interface::{Collective, Coords, Deposits, Machine};
pub use shared::SharedPieces;
