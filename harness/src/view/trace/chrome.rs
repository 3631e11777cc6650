//! Events of the Trace Event Format: Chrome trace JSON.

use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use warpheap_harness::pool_tools::timeline::Tag;

/// Bytes that are written at once.
pub const BUFFER: usize = 1 << 18;

/// A file. `trace_events` may be a sequence that is produced while it is written.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct File<T> {
    display_time_unit: &'static str,
    trace_events: T,
}

/// Writes a file.
pub fn write(to: &mut dyn Write, trace_events: impl Serialize) -> io::Result<()> {
    let mut to = BufWriter::with_capacity(BUFFER, to);
    serde_json::to_writer(&mut to, &File { display_time_unit: "ns", trace_events })?;
    to.write_all(b"\n")?;
    to.flush()
}

/// An event. Each pair of `pid` and `tid` is a track, and `pid` a group of tracks.
#[derive(Debug, Serialize)]
pub struct TraceEvent {
    /// The phase: what kind of event it is.
    pub ph: &'static str,
    /// The name, which the viewer prints.
    pub name: Name,
    /// The category.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cat: Option<&'static str>,
    /// Connects the two events of an asynchronous pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id2: Option<Local>,
    /// The scope of an instant: `p`, its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s: Option<&'static str>,
    pub pid: u32,
    pub tid: u32,
    /// Microseconds. Metadata has no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<f64>,
    pub args: Args,
}

/// A name.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Name {
    Static(&'static str),
    Tag(Tag),
    Text(String),
}

/// A number as hexadecimal text. JavaScript has no integers above 2^53.
#[derive(Clone, Copy, Debug)]
pub struct Hex(pub u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:#x}", self.0))
    }
}

/// An identifier within a process. Perfetto draws a pair without a process if its `id` is a plain
/// number.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Local {
    pub local: Hex,
}

/// The arguments of an event.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Args {
    /// An allocated block, or a failed call.
    Block {
        address: Hex,
        bytes: u64,
        align: u64,
        thread: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        tag: Option<Tag>,
        /// Microseconds. Present if it is not the time of the event.
        #[serde(skip_serializing_if = "Option::is_none")]
        allocated_us: Option<f64>,
    },
    /// The end of a block.
    End {
        thread: u64,
        stream: u64,
        /// The log has no free, but a new allocation of the address. Absent if false.
        #[serde(skip_serializing_if = "Option::is_none")]
        is_lost: Option<bool>,
    },
    /// The values of a counter.
    Series(BTreeMap<&'static str, u64>),
    /// The value of a counter with one series.
    Bytes { bytes: u128 },
    /// The name of a process.
    Name { name: String },
    /// The position of a process.
    SortIndex { sort_index: u32 },
    /// None.
    Empty {},
}

impl TraceEvent {
    /// An event without category, identifier and scope.
    pub fn new(ph: &'static str, name: Name, pid: u32, ts: f64, args: Args) -> TraceEvent {
        // Threads of different processes must not share a number.
        TraceEvent { ph, name, cat: None, id2: None, s: None, pid, tid: pid, ts: Some(ts), args }
    }

    /// The name and the position of a process.
    pub fn process(pid: u32, name: String) -> [TraceEvent; 2] {
        let metadata =
            |kind, args| TraceEvent { ts: None, ..TraceEvent::new("M", Name::Static(kind), pid, 0.0, args) };
        [
            metadata("process_name", Args::Name { name }),
            metadata("process_sort_index", Args::SortIndex { sort_index: pid }),
        ]
    }

    /// A value of a counter.
    pub fn bytes(name: &'static str, pid: u32, ts: f64, bytes: u128) -> TraceEvent {
        TraceEvent::new("C", Name::Static(name), pid, ts, Args::Bytes { bytes })
    }
}

/// Nanoseconds as microseconds.
pub fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}
