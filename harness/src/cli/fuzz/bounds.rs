//! Which command lines may run: those whose work is small, or too large for any machine.

use super::super::args::{BackendChoice, Command, MapArgs, PoolBenchArgs, PoolCommand, StressArgs};
use super::super::parse::Target;
use std::path::{Component, Path};
use std::time::Duration;

/// Whether a number is small, or so large that it must be rejected at once.
fn is_bounded(number: u64, small: u64, absurd: u64) -> bool {
    number <= small || number >= absurd
}

/// No machine has as much memory, so an allocation of as much fails.
const ABSURD_BYTES: u64 = 1 << 50;
const SMALL_BYTES: u64 = 2 << 20;

fn bytes(number: Option<u64>) -> bool {
    number.is_none_or(|number| is_bounded(number, SMALL_BYTES, ABSURD_BYTES))
}

/// Whether the work of a run is bounded. It takes at most some seconds.
pub fn is_short(command: &Command) -> bool {
    match command {
        Command::Stress(args) => is_short_stress(args),
        Command::Doctor(_) => false,
        Command::Bench(args) => is_on_cpu(args.launch.device.backend) && args.suite.is_none(),
        Command::Map(args) => is_short_map(args),
        Command::Report(_) => true,
        Command::Pool(args) => match &args.command {
            PoolCommand::Replay(args) => is_on_cpu(args.device.backend),
            PoolCommand::Export(_) => true,
            PoolCommand::Bench(args) => is_short_bench(args),
            PoolCommand::Show(args) => is_on_cpu(args.device.backend) && bytes(args.bytes),
        },
    }
}

fn is_on_cpu(backend: BackendChoice) -> bool {
    backend == BackendChoice::Cpu
}

fn is_short_stress(args: &StressArgs) -> bool {
    let is_on_cpu = args.replay || is_on_cpu(args.launch.device.backend);
    let threads = args.threads.is_some_and(|threads| is_bounded(threads.into(), 512, 1 << 31));
    let has_end = args.rounds.is_some_and(|rounds| rounds <= 2)
        || args.seconds.is_some_and(|time| time <= Duration::from_millis(10))
        || args.pairs.is_some_and(|pairs| pairs <= 1000);
    let streams = is_bounded(args.streams.into(), 4, 1 << 20);
    let sizes = is_bounded(*args.size.0.end(), 4096, 1 << 33);
    is_on_cpu && threads && has_end && streams && sizes && bytes(args.pool)
}

fn is_short_map(args: &MapArgs) -> bool {
    args.demo.is_none()
        || args.backend == Some(BackendChoice::Cpu) && args.bytes.is_some() && bytes(args.bytes)
}

fn is_short_bench(args: &PoolBenchArgs) -> bool {
    let allocations = args.allocations.is_some_and(|count| count <= 64);
    let threads = is_bounded(args.threads.into(), 4, 1 << 20);
    is_on_cpu(args.device.backend) && allocations && threads && args.rounds <= 2
}

/// Whether a run from the folder `from` writes only to `folder`, or to devices that keep nothing.
pub fn writes_only_to(folder: &Path, from: &Path, command: &Command) -> bool {
    let is_inside = |path: &Path| {
        let is_lower = path.components().all(|part| part != Component::ParentDir);
        is_lower && from.join(path).starts_with(folder)
    };
    let is_device = |path: &Path| [Path::new("/dev/null"), Path::new("/dev/full")].contains(&path);
    command.outputs().into_iter().all(|(_, target)| match target {
        Target::Stdout => true,
        Target::File(path) => is_device(path) || is_inside(path),
    })
}

/// Whether a run, in this process, leaves its standard input and output alone and does not end it.
pub fn is_quiet(command: &Command) -> bool {
    let limit = match command {
        Command::Stress(args) => Some(args.output.watchdog),
        Command::Bench(args) => Some(args.output.watchdog),
        Command::Pool(args) => match &args.command {
            PoolCommand::Replay(args) => Some(args.output.watchdog),
            PoolCommand::Bench(args) => Some(args.output.watchdog),
            PoolCommand::Show(args) => Some(args.output.watchdog),
            PoolCommand::Export(_) => None,
        },
        Command::Doctor(_) | Command::Map(_) | Command::Report(_) => None,
    };
    limit.is_none_or(|limit| limit.is_zero() || limit >= super::LIMIT)
        && command.outputs().into_iter().all(|(_, target)| *target != Target::Stdout)
        && command.inputs().into_iter().all(|path| path != Path::new("-"))
}
