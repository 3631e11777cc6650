//! `warpheap pool`: replays and exports logs, measures and shows host pools, and the driver's own
//! pools.

mod bench;
mod export;
mod replay;
mod show;

use super::args::{PoolArgs, PoolCommand};
use super::console::Console;
use super::status::{Failure, Status};
use std::borrow::Borrow;
use warpheap_harness::pool_tools::{POOLS, PoolKind};

/// Runs the selected command.
pub fn run(args: PoolArgs, console: &Console) -> Result<Status, Failure> {
    match args.command {
        PoolCommand::Replay(args) => replay::run(args, console),
        PoolCommand::Export(args) => export::run(args, console),
        PoolCommand::Bench(args) => bench::run(args, console),
        PoolCommand::Show(args) => show::run(args, console),
    }
}

/// The items of `all`, given with their names, that `requested` selects: every one for `all`,
/// otherwise those with a name that `is_meant`. Fails if there is none.
fn choose_named<N: Borrow<str>, T>(
    all: impl IntoIterator<Item = (N, T)>,
    requested: &str,
    noun: &str,
    is_meant: impl Fn(&str) -> bool,
) -> Result<Vec<T>, Failure> {
    let (names, items): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let chosen = names.iter().zip(items).filter(|(name, _)| requested == "all" || is_meant((*name).borrow()));
    let chosen: Vec<_> = chosen.map(|(_, item)| item).collect();
    if chosen.is_empty() {
        let names = names.join(", ");
        return Err(Failure::usage(format_args!("there is no {noun} `{requested}`; there are {names}")));
    }
    Ok(chosen)
}

/// The pools with that name, or all.
fn pools(name: &str) -> Result<Vec<&'static PoolKind>, Failure> {
    choose_named(POOLS.iter().map(|kind| (kind.name, kind)), name, "pool", |known| known == name)
}
