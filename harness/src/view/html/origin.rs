//! How results were made: the device, the machine, the program, the method.

use crate::report::human::{BinaryBytes, Count};
use crate::report::provenance::{Compilers, Host, Origin};
use crate::report::results::{Data, Results};
use maud::{Markup, html};

/// What readers of results of the CPU must know.
pub fn simulated(one: &Results) -> Markup {
    let what = match one.data {
        Data::Pools(_) => "The memory of the device is that of the program on the CPU.",
        Data::Bench(_) | Data::Stress(_) => "The CPU simulates the threads of the kernels.",
    };
    html! {
        p.notice role="note" { strong { "No GPU." } " " (what) " The times say nothing about a GPU." }
    }
}

/// Wrong results. They are above all others.
pub fn wrong(wrong: &[String]) -> Markup {
    html! { @for what in wrong { p.notice { strong { "Wrong: " } (what) } } }
}

/// Notes, and what was left out.
pub fn remarks(notes: &[String], left_out: &[String]) -> Markup {
    html! {
        @if !(notes.is_empty() && left_out.is_empty()) {
            h2 { "Notes" }
            ul.dim {
                @for note in notes { li { (note) } }
                @for what in left_out { li { "Left out: " (what) } }
            }
        }
    }
}

/// The date, the program and the driver in one line.
pub fn line(one: &Results) -> String {
    let origin = &one.origin;
    let driver = origin.driver.as_ref().map(|version| format!(", driver {version}")).unwrap_or_default();
    format!("{}, warpheap {}, commit {}{driver}", origin.date, origin.version, origin.commit)
}

/// The description of the measurement.
fn method(one: &Results) -> String {
    match &one.data {
        Data::Bench(bench) => format!(
            "Each time is the median of at most {} rounds after a warm-up, by events of the stream; a line through \
             a marker extends from the fastest to the slowest round. A floor is a kernel without the allocator, \
             measured in the same run. It stores or loads a word for each operation, but not at the addresses \
             that an allocator would return, so its memory traffic can differ. Axes are logarithmic.",
            Count(bench.bench.rounds.into())
        ),
        Data::Stress(_) => {
            "A rate counts pairs of an allocation and a free per second in kernels, including all checks \
             of each pair. The command bench measures the allocators alone."
                .into()
        }
        Data::Pools(pools) => format!(
            "Times are of the host. A pair is an allocation and its free: the median of {} rounds; a line \
             through a marker extends from the fastest to the slowest round. Axes are logarithmic.",
            Count(pools.rounds.into())
        ),
    }
}

/// The device and its size.
fn device(one: &Results) -> String {
    let Some(device) = &one.origin.device else { return one.device().to_owned() };
    let some = |number: u64| (number > 0).then_some(number);
    let parts = [
        Some(device.name.clone()),
        device.compute_capability.as_ref().map(|cc| format!("compute capability {cc}")),
        some(device.multiprocessors.into()).map(|count| format!("{} multiprocessors", Count(count))),
        some(device.memory_bytes).map(|size| BinaryBytes(size).to_string()),
        some(device.l2_bytes).map(|size| format!("{} of L2", BinaryBytes(size))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The processor, its threads and the target.
fn machine(host: &Host) -> String {
    let Host { target, cpu, cpu_threads } = host;
    format!("{}, {} threads, {target}", cpu.as_deref().unwrap_or(NONE), Count(*cpu_threads as u64))
}

/// Stands for what is unknown or missing.
const NONE: &str = "none";

/// The method and the origin of the results.
pub fn section(one: &Results) -> Markup {
    let Origin { version, commit, date, command, compiler, host, driver, kernels, .. } = &one.origin;
    let compilers = |of: &Compilers| format!("host: {}; kernels: {}", of.host, of.device);
    let rows = [
        ("device", device(one)),
        ("driver", driver.clone().unwrap_or(NONE.into())),
        ("kernels", kernels.clone().unwrap_or(NONE.into())),
        ("machine", host.as_ref().map_or(NONE.into(), machine)),
        ("program", format!("warpheap {version}, commit {commit}")),
        ("compilers", compiler.as_ref().map_or(NONE.into(), compilers)),
        ("date", date.clone()),
    ];
    html! {
        h2 { "Method and origin" }
        p { (method(one)) }
        dl {
            @for (name, text) in rows { dt { (name) } dd { (text) } }
            dt { "command" } dd { code { (command.join(" ")) } }
        }
    }
}
