//! `warpheap pool`: replays and exports logs, measures and shows host pools, and the driver's own
//! pools.

mod bench;
mod export;
mod replay;
mod show;

use super::args::{PoolArgs, PoolCommand};
use super::console::Console;
use super::status::{Failure, Status};

/// Runs the selected command.
pub fn run(args: PoolArgs, console: &Console) -> Result<Status, Failure> {
    match args.command {
        PoolCommand::Replay(args) => replay::run(args, console),
        PoolCommand::Export(args) => export::run(args, console),
        PoolCommand::Bench(args) => bench::run(args, console),
        PoolCommand::Show(args) => show::run(args, console),
    }
}
