//! How results were made: the device, the machine, the program, the method.

use super::parts::array;
use crate::report::human::{BinaryBytes, Count};
use crate::report::saved::{Data, Saved};
use maud::{Markup, html};
use serde_json::Value;

/// What readers of results of the CPU must know.
pub fn simulated(one: &Saved) -> Markup {
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
pub fn line(one: &Saved) -> String {
    let origin = &one.origin;
    let driver = origin.driver.as_ref().map(|version| format!(", driver {version}")).unwrap_or_default();
    format!("{}, warpheap {}, commit {}{driver}", origin.date, origin.version, origin.commit)
}

/// The description of the measurement.
fn method(one: &Saved) -> String {
    match &one.data {
        Data::Bench(bench) => format!(
            "Each time is the median of at most {} rounds after a warm-up, by events of the stream; a line through \
             a marker extends from the fastest to the slowest round. A floor is a kernel without the allocator, \
             measured in the same run. It stores or loads a word for each operation, but not at the addresses \
             that an allocator would return, so its memory traffic can differ. Axes are logarithmic.",
            Count(bench.rounds)
        ),
        Data::Stress(_) => {
            "A rate counts pairs of an allocation and a free per second in kernels, including all checks \
             of each pair. The command bench measures the allocators alone."
                .into()
        }
        Data::Pools(pools) => format!(
            "Times are of the host. A pair is an allocation and its free: the median of {} rounds; a line \
             through a marker extends from the fastest to the slowest round. Axes are logarithmic.",
            Count(pools.rounds)
        ),
    }
}

/// The device and its size.
fn device(one: &Saved) -> String {
    let field = |pointer: &str| one.value.pointer(pointer);
    let number = |pointer: &str| field(pointer).and_then(Value::as_u64).filter(|number| *number > 0);
    let parts = [
        Some(one.device().to_owned()),
        field("/device/compute_capability")
            .and_then(Value::as_str)
            .map(|cc| format!("compute capability {cc}")),
        number("/device/multiprocessors").map(|count| format!("{} multiprocessors", Count(count))),
        number("/device/memory_bytes").map(|size| BinaryBytes(size).to_string()),
        number("/device/l2_bytes").map(|size| format!("{} of L2", BinaryBytes(size))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The method and the origin of the results.
pub fn section(one: &Saved) -> Markup {
    let value = &one.value;
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or("none").to_owned();
    let count = |pointer: &str| value.pointer(pointer).and_then(Value::as_u64).map(|n| Count(n).to_string());
    let command: Vec<_> = array(value, "/command").into_iter().filter_map(Value::as_str).collect();
    let rows = [
        ("device", device(one)),
        ("driver", text("/driver")),
        ("kernels", text("/kernels")),
        (
            "machine",
            format!(
                "{}, {} threads, {}",
                text("/host/cpu"),
                count("/host/cpu_threads").unwrap_or_default(),
                text("/host/target")
            ),
        ),
        ("program", format!("warpheap {}, commit {}", one.origin.version, one.origin.commit)),
        ("compilers", format!("host: {}; kernels: {}", text("/compiler/host"), text("/compiler/device"))),
        ("date", one.origin.date.clone()),
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
