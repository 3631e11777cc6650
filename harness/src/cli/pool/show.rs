//! `warpheap pool show`: the driver's stream-ordered pools of a device, with their settings and
//! statistics.

use super::super::args::PoolShowArgs;
use super::super::backend::choose_bare;
use super::super::console::Console;
use super::super::results::{watchdog, write_results};
use super::super::status::{Failure, Status};
use crate::report::human::BinaryBytes;
use crate::report::table::Summary;
use serde::Serialize;
use std::alloc::Layout;
use warpheap::error::InvalidRequest;
use warpheap::host_pools::{DeviceAllocator, DriverPool, ReusePolicies};
use warpheap::{Device, Error};

/// The kept results. Sizes are in bytes.
#[derive(Debug, Serialize)]
struct Shown {
    memory_free_bytes: u64,
    memory_total_bytes: u64,
    /// Whether allocations without an explicit pool come from the device's default pool.
    current_is_default: bool,
    pools: Vec<State>,
}

/// A pool at one moment.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct State {
    /// `default` or `current`.
    pool: &'static str,
    when: &'static str,
    release_threshold: u64,
    used_bytes: u64,
    peak_used_bytes: u64,
    reserved_bytes: u64,
    peak_reserved_bytes: u64,
    reuse: ReusePolicies,
}

impl State {
    fn of(pool: &DriverPool, name: &'static str, when: &'static str) -> Result<State, Error> {
        let stats = pool.stats()?;
        Ok(State {
            pool: name,
            when,
            release_threshold: stats.release_threshold,
            used_bytes: stats.usage.used_bytes,
            peak_used_bytes: stats.peak_used_bytes,
            reserved_bytes: stats.usage.reserved_bytes,
            peak_reserved_bytes: stats.peak_reserved_bytes,
            reuse: pool.reuse()?,
        })
    }
}

const ADVICE: &str = "Check whether `warpheap doctor` gets a response from the driver.";

/// Shows the pools of the selected device.
pub fn run(args: PoolShowArgs, console: &Console) -> Result<Status, Failure> {
    let chosen = choose_bare(args.device)?;
    let watchdog = watchdog(args.output.watchdog, "asking the driver for its pools", ADVICE);
    let shown = look(&chosen.device, args.bytes).map_err(failure)?;
    drop(watchdog);
    console.say("warpheap pool show");
    chosen.say(console)?;
    tell(&shown, console);
    let info = chosen.device.info()?;
    write_results(args.output.json.as_ref(), "pool-show", Some(&info), None, shown, console)?;
    Ok(Status::Clean)
}

/// An operation that the device does not support, or has no room for, is not a failure of the
/// machine.
fn failure(error: Error) -> Failure {
    match &error {
        Error::NotSupported(_) | Error::OutOfMemory(_) | Error::InvalidRequest(_) => Failure::usage(error),
        _ => error.into(),
    }
}

/// The default pool, and the current one if it is another. With `bytes`, these are allocated from
/// the current pool and freed, and its state is recorded after each step.
fn look(device: &Device, bytes: Option<u64>) -> Result<Shown, Error> {
    let default = DriverPool::default_of(device)?;
    // SAFETY: this program destroys no pool that it did not create.
    let current = unsafe { DriverPool::current_of(device) }?;
    let current_is_default = current.is_same(&default);
    let mut pools = vec![State::of(&default, "default", "at first")?];
    let name = if current_is_default { "default" } else { "current" };
    if !current_is_default {
        pools.push(State::of(&current, name, "at first")?);
    }
    if let Some(bytes) = bytes {
        pools.extend(steps(&current, name, bytes)?);
    }
    let info = device.info()?;
    let (memory_free_bytes, memory_total_bytes) = (info.memory_free, info.memory_total);
    Ok(Shown { memory_free_bytes, memory_total_bytes, current_is_default, pools })
}

fn steps(pool: &DriverPool, name: &'static str, bytes: u64) -> Result<[State; 3], Error> {
    let stream = pool.device().stream()?;
    let layout = usize::try_from(bytes).ok().and_then(|bytes| Layout::from_size_align(bytes, 256).ok());
    let layout =
        layout.ok_or(InvalidRequest::SizeOverflow { len: bytes as usize, element: warpheap::Bytes(1) })?;
    let block = pool.allocate(layout, &stream)?;
    let allocated = State::of(pool, name, "allocated")?;
    // SAFETY: allocated above, and nothing uses it.
    unsafe { pool.deallocate(block, layout, &stream) }?;
    let freed = State::of(pool, name, "freed")?;
    stream.synchronize()?;
    Ok([allocated, freed, State::of(pool, name, "waited for")?])
}

fn tell(shown: &Shown, console: &Console) {
    let (free, total) = (BinaryBytes(shown.memory_free_bytes), BinaryBytes(shown.memory_total_bytes));
    console.say(format_args!("  memory   {free} of {total} are free"));
    console.say(match shown.current_is_default {
        true => "  current  the default pool; it serves allocations that name no pool (cudaMallocAsync)",
        false => "  current  not the default pool; it serves allocations that name no pool (cudaMallocAsync)",
    });
    console.say("  figures  of this process only; each process has its own pools");
    let headings: Vec<String> =
        shown.pools.iter().map(|state| format!("{} pool, {}", state.pool, state.when)).collect();
    let headings: Vec<&str> = [""].into_iter().chain(headings.iter().map(String::as_str)).collect();
    let mut table = Summary::new(&headings, console.is_terminal());
    for (name, cell) in ROWS {
        table.row([name.to_owned()].into_iter().chain(shown.pools.iter().map(cell)).collect());
    }
    console.say(format_args!("\n{}", table.render()));
}

type Row = (&'static str, fn(&State) -> String);

const ROWS: [Row; 8] = [
    ("release threshold", |state| threshold(state.release_threshold)),
    ("used", |state| bytes(state.used_bytes)),
    ("peak used", |state| bytes(state.peak_used_bytes)),
    ("reserved", |state| bytes(state.reserved_bytes)),
    ("peak reserved", |state| bytes(state.peak_reserved_bytes)),
    ("reuse: follow event dependencies", |state| yes(state.reuse.follow_event_dependencies)),
    ("reuse: allow opportunistic", |state| yes(state.reuse.allow_opportunistic)),
    ("reuse: allow internal dependencies", |state| yes(state.reuse.allow_internal_dependencies)),
];

fn bytes(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}

fn threshold(threshold: u64) -> String {
    if threshold == u64::MAX { "none: keeps all memory".into() } else { bytes(threshold) }
}

fn yes(is_on: bool) -> String {
    if is_on { "yes" } else { "no" }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn cells(state: &State) -> Vec<String> {
        ROWS.iter().map(|(_, cell)| cell(state)).collect()
    }

    /// Each attribute has a different value, so that a mix-up is detected.
    #[test]
    fn it_shows_what_the_program_set_and_allocated() {
        let device = Device::cpu();
        let (pool, stream) = (DriverPool::default_of(&device).unwrap(), device.stream().unwrap());
        let layout = |mib: u64| Layout::from_size_align((mib * MIB) as usize, 256).unwrap();
        pool.set_release_threshold(64 * MIB).unwrap();
        let [kept, freed, large] = [1, 4, 16].map(|mib| pool.allocate(layout(mib), &stream).unwrap());
        for (block, mib) in [(freed, 4), (large, 16)] {
            // SAFETY: allocated above, and nothing uses it.
            unsafe { pool.deallocate(block, layout(mib), &stream) }.unwrap();
        }
        stream.synchronize().unwrap();
        let shown = look(&device, None).unwrap();
        let (reserved, high) =
            (pool.stats().unwrap().usage.reserved_bytes, pool.stats().unwrap().peak_reserved_bytes);
        let expected = State {
            pool: "default",
            when: "at first",
            release_threshold: 64 * MIB,
            used_bytes: MIB,
            peak_used_bytes: 21 * MIB,
            reserved_bytes: reserved,
            peak_reserved_bytes: high,
            reuse: ReusePolicies::default(),
        };
        assert!(reserved >= 21 * MIB && high >= reserved);
        assert_eq!((&shown.pools[..], shown.current_is_default), (&[expected][..], true));
        let info = device.info().unwrap();
        assert_eq!(
            (shown.memory_free_bytes, shown.memory_total_bytes),
            (info.memory_free, info.memory_total)
        );
        assert_eq!(info.memory_total - info.memory_free, reserved);
        // SAFETY: allocated above, and nothing uses it.
        unsafe { pool.deallocate(kept, layout(1), &stream) }.unwrap();
    }

    #[test]
    fn each_policy_is_shown_as_itself() {
        let device = Device::cpu();
        let pool = DriverPool::default_of(&device).unwrap();
        let none = ReusePolicies::none();
        for on in 0..3 {
            let mut reuse = none;
            match on {
                0 => reuse.follow_event_dependencies = true,
                1 => reuse.allow_opportunistic = true,
                _ => reuse.allow_internal_dependencies = true,
            }
            pool.set_reuse(reuse).unwrap();
            let cells = cells(&look(&device, None).unwrap().pools[0]);
            let yes: Vec<_> = (5..8).filter(|row| cells[*row] == "yes").collect();
            assert_eq!(yes, [5 + on], "{cells:?}");
        }
    }

    /// With the default threshold, 0, it keeps none: a test of the program.
    #[test]
    fn without_a_threshold_the_pool_keeps_its_memory() {
        let device = Device::cpu();
        DriverPool::default_of(&device).unwrap().set_release_threshold(u64::MAX).unwrap();
        let states = look(&device, Some(100 * MIB)).unwrap().pools;
        assert!(states[3].used_bytes == 0 && states[3].reserved_bytes >= 100 * MIB, "{states:?}");
        assert_eq!(cells(&states[0])[0], "none: keeps all memory");
    }

    #[test]
    fn a_feature_that_the_device_lacks_is_no_failure_of_the_machine() {
        let device = Device::cpu();
        for bytes in [1 << 62, u64::MAX] {
            let failure = failure(look(&device, Some(bytes)).unwrap_err());
            assert_eq!(failure.status, Status::Usage, "{}", failure.message);
        }
    }
}
