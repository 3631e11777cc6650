//! Traces for Perfetto: logs of host pools and maps of heaps as Chrome trace JSON, in the Trace
//! Event Format. `docs/guide/traces.md` documents what is written. Logs are written while they are
//! read.
//!
//! Of a log, process 1 has the live bytes of all streams. Each stream is another process, with its
//! live bytes and an asynchronous pair of events for each block, because blocks overlap without
//! being nested.

use crate::report::heap_map::shares;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Display};
use std::io::{self, BufWriter, Write};
use warpheap::Result;
use warpheap::device_pools::{HeapMap, SlabContent};
use warpheap_harness::pool_tools::timeline::{Event, EventKind};

/// Bytes that are written at once.
pub const BUFFER: usize = 1 << 18;
/// The process of all streams, or of the heap.
const ALL: u32 = 1;

/// Writes the events of a log. Sizes of an invalid log can have any sum, which fits into 128 bits.
pub fn perfetto(events: impl Iterator<Item = Result<Event>>, to: &mut dyn Write) -> io::Result<()> {
    let mut trace = Trace::new(to, "all streams")?;
    let (mut all, mut streams) = (0, HashMap::<u64, (u32, u128)>::new());
    for event in events {
        let Event { time, thread, stream, kind, block, .. } = event.map_err(io::Error::other)?;
        let next = u32::try_from(streams.len()).map_or(u32::MAX, |streams| streams + ALL + 1);
        let (pid, live) = streams.entry(block.stream).or_insert((next, 0));
        if *pid == next {
            // RMM's logs have addresses in place of numbers.
            let is_address = block.stream > u64::from(u32::MAX);
            let number = if is_address { format!("{:#x}", block.stream) } else { block.stream.to_string() };
            trace.process(next, &format!("stream {number}"))?;
        }
        // The two events of a pair need the same name.
        let name = block.tag.as_deref().unwrap_or("block");
        let pair = format!(r#","cat":"block","id2":{{"local":"{:#x}"}}"#, block.id);
        let tag = block.tag.as_deref().map(|tag| format!(r#","tag":{}"#, Text(tag))).unwrap_or_default();
        let allocated = match block.allocated {
            allocated if allocated == time => String::new(),
            allocated => format!(r#","allocated_us":{:?}"#, micros(allocated)),
        };
        let args = format!(
            r#""address":"{:#x}","bytes":{},"align":{},"thread":{thread}{tag}{allocated}"#,
            block.address, block.bytes, block.align
        );
        let bytes = u128::from(block.bytes);
        match kind {
            EventKind::Alloc => {
                trace.event("b", name, &pair, *pid, Some(time), args)?;
                (all, *live) = (all + bytes, *live + bytes);
            }
            EventKind::Free | EventKind::Lost => {
                let lost = if kind == EventKind::Lost { r#","is_lost":true"# } else { "" };
                let args = format!(r#""thread":{thread},"stream":{stream}{lost}"#);
                trace.event("e", name, &pair, *pid, Some(time), args)?;
                (all, *live) = (all - bytes, *live - bytes);
            }
            _ => {
                let is_free = kind == EventKind::FreeFailure;
                let name = if is_free { "failed free" } else { "failed allocation" };
                trace.event("i", name, r#","cat":"failure","s":"p""#, *pid, Some(time), args)?;
                continue;
            }
        }
        trace.counter("live", *pid, time, [("bytes", *live)])?;
        trace.counter("live", ALL, time, [("bytes", all)])?;
    }
    trace.finish()
}

/// Fails if the times of the maps do not increase: their samples would be at the same place or in
/// another order.
pub fn check_times(maps: &[HeapMap]) -> Result<(), String> {
    let is_ordered = |pair: &[HeapMap]| pair[0].unix_seconds != 0 && nanos(&pair[0]) < nanos(&pair[1]);
    let Some(place) = maps.windows(2).position(|pair| !is_ordered(pair)) else { return Ok(()) };
    let map = |i: usize| format!("map {} (`{}`)", i + 1, maps[i].label);
    let unknown = [place, place + 1].into_iter().find(|i| maps[*i].unix_seconds == 0);
    Err(match unknown {
        Some(i) => format!("{} has no time: its `unix_seconds` is 0", map(i)),
        None => format!("{} is not later than {}", map(place + 1), map(place)),
    })
}

/// Writes the counters of maps in order of time. Times begin at the first map. Parts of the memory
/// that no map uses are left out: a viewer has a track for each.
pub fn perfetto_of_maps(maps: &[HeapMap], to: &mut dyn Write) -> io::Result<()> {
    let memory =
        |map: &HeapMap| shares(map, &map.totals()).map(|share| (share.name, u128::from(share.bytes)));
    let used: BTreeSet<&str> =
        maps.iter().flat_map(memory).filter(|(_, bytes)| *bytes > 0).map(|(name, _)| name).collect();
    let classes: BTreeSet<u64> = maps.iter().flat_map(|map| live_by_class(map).into_keys()).collect();
    let begin = maps.iter().map(nanos).min().unwrap_or(0);
    let mut trace = Trace::new(to, "device heap")?;
    for map in maps {
        let (time, totals, live) = (nanos(map) - begin, map.totals(), live_by_class(map));
        trace.event("i", &map.label, r#","cat":"map","s":"p""#, ALL, Some(time), "")?;
        trace.counter(
            "memory",
            ALL,
            time,
            memory(map).into_iter().filter(|(name, _)| used.contains(name)),
        )?;
        for (name, series, value) in [
            ("largest free range", "bytes", totals.largest_free_bytes),
            ("live, large allocations", "bytes", totals.large_bytes),
            ("failed allocations", "count", map.failed_allocations),
            ("faults", "count", map.faults),
        ] {
            trace.counter(name, ALL, time, [(series, value.into())])?;
        }
        for class in &classes {
            let bytes = live.get(class).copied().unwrap_or(0);
            trace.counter(&format!("live, blocks of {class} B"), ALL, time, [("bytes", bytes.into())])?;
        }
    }
    trace.finish()
}

/// Nanoseconds since 1970.
fn nanos(map: &HeapMap) -> u64 {
    map.unix_seconds.saturating_mul(1_000_000_000).saturating_add(map.subsec_nanos.into())
}

/// Live bytes of each class with a run, by bytes per block.
fn live_by_class(map: &HeapMap) -> BTreeMap<u64, u64> {
    let mut live = BTreeMap::new();
    for part in &map.parts {
        if let SlabContent::Run { block_bytes, blocks, free_blocks, quarantined_blocks } = part.content {
            let blocks = u64::from(blocks - free_blocks - quarantined_blocks);
            *live.entry(block_bytes).or_default() += blocks * block_bytes;
        }
    }
    live
}

/// A trace that is written. Each pair of `pid` and `tid` is a track, and `pid` a group of tracks.
struct Trace<'a> {
    to: BufWriter<&'a mut dyn Write>,
    is_first: bool,
}

impl<'a> Trace<'a> {
    /// A trace with the process [`ALL`].
    fn new(to: &'a mut dyn Write, name: &str) -> io::Result<Trace<'a>> {
        let mut to = BufWriter::with_capacity(BUFFER, to);
        to.write_all(br#"{"displayTimeUnit":"ns","traceEvents":["#)?;
        let mut trace = Trace { to, is_first: true };
        trace.process(ALL, name)?;
        Ok(trace)
    }

    /// Writes an event of phase `ph`. `more` are further fields. Metadata has no time.
    fn event(
        &mut self,
        ph: &str,
        name: &str,
        more: &str,
        pid: u32,
        time: Option<u64>,
        args: impl Display,
    ) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.is_first) { "" } else { "," };
        // Threads of different processes must not share a number.
        let name = Text(name);
        write!(self.to, r#"{comma}{{"ph":"{ph}","name":{name}{more},"pid":{pid},"tid":{pid}"#)?;
        if let Some(time) = time {
            write!(self.to, r#","ts":{:?}"#, micros(time))?;
        }
        write!(self.to, r#","args":{{{args}}}}}"#)
    }

    /// The name and the position of a process.
    fn process(&mut self, pid: u32, name: &str) -> io::Result<()> {
        self.event("M", "process_name", "", pid, None, format_args!(r#""name":{}"#, Text(name)))?;
        self.event("M", "process_sort_index", "", pid, None, format_args!(r#""sort_index":{pid}"#))
    }

    /// The values of a counter.
    fn counter<'b>(
        &mut self,
        name: &str,
        pid: u32,
        time: u64,
        series: impl IntoIterator<Item = (&'b str, u128)>,
    ) -> io::Result<()> {
        let series: Vec<_> = series.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        self.event("C", name, "", pid, Some(time), series.join(","))
    }

    fn finish(mut self) -> io::Result<()> {
        self.to.write_all(b"]}\n")?;
        self.to.flush()
    }
}

/// Nanoseconds as microseconds.
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// A text as JSON.
struct Text<'a>(&'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self.0).map_err(|_| fmt::Error)?)
    }
}
