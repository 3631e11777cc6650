//! `warpheap pool`: replays, measures and shows host pools, and the driver's own pools.

mod bench;
mod demo;
mod replay;
mod show;

use super::args::{PoolArgs, PoolCommand};
use super::backend::{Bare, describe};
use super::console::Console;
use super::status::{Failure, Status};
use std::time::Duration;
use warpheap::{Error, Watchdog};
use warpheap_harness::pool_tools::{POOLS, PoolKind};

/// Runs the selected command.
pub fn run(args: PoolArgs, console: &Console) -> Result<Status, Failure> {
    match args.command {
        PoolCommand::Replay(args) => replay::run(args, console),
        PoolCommand::Bench(args) => bench::run(args, console),
        PoolCommand::Demo(args) => demo::run(args, console),
        PoolCommand::Show(args) => show::run(args, console),
    }
}

/// The pools with that name, or all.
fn pools(name: &str) -> Result<Vec<&'static PoolKind>, Failure> {
    let named: Vec<_> = POOLS.iter().filter(|kind| name == "all" || kind.name == name).collect();
    if named.is_empty() {
        let names: Vec<_> = POOLS.iter().map(|kind| kind.name).collect();
        return Err(Failure::usage(format!("there is no pool `{name}`; there are {}", names.join(", "))));
    }
    Ok(named)
}

/// Prints the device, and why it is not a GPU.
fn say_device(chosen: &Bare, console: &Console) -> Result<(), Error> {
    console.say(format_args!("  device   {}", describe(&chosen.device, None)?));
    if let Some(why) = &chosen.why_not_cuda {
        console.say(format_args!("  not on a GPU: {why}"));
    }
    Ok(())
}

/// A watchdog, or none if there is no limit.
fn arm(limit: Duration, what: &str, advice: &'static str) -> Option<Watchdog> {
    (!limit.is_zero()).then(|| Watchdog::start(limit, what, advice, Status::Hung as i32))
}
