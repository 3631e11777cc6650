//! A log of a host pool as Chrome trace JSON.
//!
//! Process 1 has the live bytes of all streams. Each stream is another process, with its live bytes
//! and an asynchronous pair of events for each block, because blocks overlap without being nested.

use super::chrome::{Args, Hex, Local, Name, TraceEvent, micros, write};
use super::streamed::{Format, Items, Streamed};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use warpheap::Result;
use warpheap_harness::pool_tools::timeline::{Block, Event, EventKind};

/// The process of all streams.
const ALL: u32 = 1;
const LIVE: &str = "live";

/// Writes `events` while they are read.
pub fn perfetto(events: impl Iterator<Item = Result<Event>>, to: &mut dyn Write) -> io::Result<()> {
    let items = Items::new(events, Tracks::default(), TraceEvent::process(ALL, "all streams".into()));
    write(to, Streamed(&RefCell::new(items)))
}

/// The tracks so far, with the live bytes of exported blocks. Sizes of an invalid log can have any
/// sum, which fits into 128 bits.
#[derive(Debug, Default)]
struct Tracks {
    live: u128,
    streams: HashMap<u64, Track>,
}

#[derive(Clone, Copy, Debug)]
struct Track {
    pid: u32,
    live: u128,
}

impl Format for Tracks {
    type Item = TraceEvent;

    fn add(&mut self, event: Event, to: &mut VecDeque<TraceEvent>) {
        let Block { id, stream, bytes, .. } = event.block;
        let (ts, bytes) = (micros(event.time), u128::from(bytes));
        self.introduce(stream, to);
        let Some(track) = self.streams.get_mut(&stream) else { return };
        let pid = track.pid;
        match event.kind {
            EventKind::Alloc => (self.live, track.live) = (self.live + bytes, track.live + bytes),
            EventKind::Free | EventKind::Lost => {
                (self.live, track.live) = (self.live - bytes, track.live - bytes);
            }
            _ => return to.push_back(failure(event, pid)),
        }
        let live = track.live;
        let (ph, name, args) = (phase(event.kind), name(&event.block), args(event));
        let (cat, id2) = (Some("block"), Some(Local { local: Hex(id) }));
        to.push_back(TraceEvent { cat, id2, ..TraceEvent::new(ph, name, pid, ts, args) });
        to.push_back(TraceEvent::bytes(LIVE, pid, ts, live));
        to.push_back(TraceEvent::bytes(LIVE, ALL, ts, self.live));
    }
}

impl Tracks {
    /// Names the process of a stream at its first event.
    fn introduce(&mut self, stream: u64, to: &mut VecDeque<TraceEvent>) {
        // The process after `ALL` and all known streams.
        let pid = u32::try_from(self.streams.len()).map_or(u32::MAX, |streams| streams + ALL + 1);
        self.streams.entry(stream).or_insert_with(|| {
            // RMM's logs have addresses in place of numbers.
            let is_address = stream > u64::from(u32::MAX);
            let name = if is_address { format!("stream {stream:#x}") } else { format!("stream {stream}") };
            to.extend(TraceEvent::process(pid, name));
            Track { pid, live: 0 }
        });
    }
}

fn phase(kind: EventKind) -> &'static str {
    if kind == EventKind::Alloc { "b" } else { "e" }
}

/// Pairs of events need the same name. Blocks without a tag share one.
fn name(block: &Block) -> Name {
    block.tag.clone().map_or(Name::Static("block"), Name::Tag)
}

fn args(event: Event) -> Args {
    let Event { time, thread, stream, block, kind, .. } = event;
    match kind {
        EventKind::Free | EventKind::Lost => {
            Args::End { thread, stream, is_lost: (kind == EventKind::Lost).then_some(true) }
        }
        _ => {
            let allocated_us = (block.allocated != time).then(|| micros(block.allocated));
            let (address, Block { bytes, align, tag, .. }) = (Hex(block.address), block);
            Args::Block { address, bytes, align, thread, tag, allocated_us }
        }
    }
}

/// An instant for a failed call.
fn failure(event: Event, pid: u32) -> TraceEvent {
    let is_free = event.kind == EventKind::FreeFailure;
    let name = Name::Static(if is_free { "failed free" } else { "failed allocation" });
    let ts = micros(event.time);
    let failed = TraceEvent::new("i", name, pid, ts, args(event));
    TraceEvent { cat: Some("failure"), s: Some("p"), ..failed }
}
