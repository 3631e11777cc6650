//! A log of a host pool as a snapshot of PyTorch's allocator, pickled.
//!
//! The snapshot has one device. Its trace has every event of the log; its segments are the address
//! ranges of all exported blocks, with the blocks that are live at the end.

use super::chrome::BUFFER;
use super::extents::{Extent, Extents};
use super::streamed::{Format, Items, Streamed};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_pickle::SerOptions;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufWriter, Read, Write};
use warpheap::Result;
use warpheap_harness::pool_tools::timeline::{Block, Event, EventKind, Events, Tag};

/// Writes `events` while they are read.
pub fn pytorch<R: Read>(events: &mut Events<R>, to: &mut dyn Write) -> io::Result<()> {
    let items = RefCell::new(Items::new(events, Traces::default(), []));
    let snapshot = Snapshot { device_traces: vec![Streamed(&items)], segments: Segments(&items) };
    let mut to = BufWriter::with_capacity(BUFFER, to);
    serde_pickle::to_writer(&mut to, &snapshot, SerOptions::new()).map_err(io::Error::other)?;
    to.flush()
}

/// The trace is first: the segments are known at its end.
#[derive(Serialize)]
struct Snapshot<T, S> {
    device_traces: Vec<T>,
    segments: S,
}

/// The address ranges of the blocks so far.
#[derive(Debug, Default)]
struct Traces {
    extents: Extents,
}

/// An entry of a trace.
#[derive(Debug, Serialize)]
struct Entry {
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    addr: Option<Int>,
    /// In place of `addr` for `oom`. A log does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_free: Option<Int>,
    size: Int,
    stream: Int,
    time_us: Int,
    frames: Frames,
}

impl Format for Traces {
    type Item = Entry;

    fn add(&mut self, event: Event, to: &mut VecDeque<Entry>) {
        let Block { address, bytes, stream, tag, .. } = event.block;
        let entry = |action, is_oom: bool| {
            let (addr, device_free) = ((!is_oom).then_some(Int(address)), is_oom.then_some(Int(0)));
            let (size, stream, time_us) = (Int(bytes), Int(stream), Int(event.time / 1000));
            Entry { action, addr, device_free, size, stream, time_us, frames: Frames(tag.clone()) }
        };
        match event.kind {
            EventKind::Alloc => {
                self.extents.add(address, bytes, stream);
                to.push_back(entry("alloc", false));
            }
            EventKind::Free | EventKind::Lost => {
                to.extend([entry("free_requested", false), entry("free_completed", false)]);
            }
            EventKind::AllocFailure => to.push_back(entry("oom", true)),
            // The format has no such action. The block stays live.
            _ => {}
        }
    }
}

/// A segment, as `torch.cuda.memory_snapshot` describes it.
#[derive(Debug, Serialize)]
struct Segment {
    device: u32,
    address: Int,
    total_size: Int,
    allocated_size: Int,
    active_size: Int,
    requested_size: Int,
    stream: Int,
    segment_type: &'static str,
    segment_pool_id: [u32; 2],
    is_expandable: bool,
    frames: Frames,
    blocks: Vec<SegmentBlock>,
}

/// A block of a segment. The blocks of a segment cover it, in address order.
#[derive(Debug, Serialize)]
struct SegmentBlock {
    address: Int,
    size: Int,
    requested_size: Int,
    state: &'static str,
    frames: Frames,
}

/// The segments of the events that have been read when they are serialised.
struct Segments<'a, 'b, R>(&'a RefCell<Items<&'b mut Events<R>, Traces>>);

impl<R: Read> Serialize for Segments<'_, '_, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let items = self.0.borrow();
        let live = items.events.live();
        let live: BTreeMap<u64, &Block> = live.iter().map(|block| (block.address, block)).collect();
        let mut sequence = serializer.serialize_seq(None)?;
        for extent in items.format.extents.iter() {
            sequence.serialize_element(&segment(extent, live.range(extent.start..extent.end)))?;
        }
        sequence.end()
    }
}

fn segment<'a>(extent: Extent, live: impl Iterator<Item = (&'a u64, &'a &'a Block)>) -> Segment {
    let (mut blocks, mut next, mut allocated) = (Vec::new(), extent.start, 0);
    let mut live = live.map(|(_, block)| *block).peekable();
    while let Some(block) = live.next() {
        if next < block.address {
            blocks.push(SegmentBlock::inactive(next, block.address));
        }
        // In an inconsistent log, blocks may overlap.
        let end = live.peek().map_or(extent.end, |after| after.address);
        let size = block.bytes.min(end - block.address);
        blocks.push(SegmentBlock::live(block, size));
        (next, allocated) = (block.address + size, allocated + size);
    }
    if next < extent.end {
        blocks.push(SegmentBlock::inactive(next, extent.end));
    }
    Segment {
        device: 0,
        address: Int(extent.start),
        total_size: Int(extent.end - extent.start),
        allocated_size: Int(allocated),
        active_size: Int(allocated),
        requested_size: Int(allocated),
        stream: Int(extent.stream),
        segment_type: "large",
        segment_pool_id: [0, 0],
        is_expandable: false,
        frames: Frames(None),
        blocks,
    }
}

impl SegmentBlock {
    fn inactive(start: u64, end: u64) -> SegmentBlock {
        let (size, state) = (Int(end - start), "inactive");
        SegmentBlock { address: Int(start), size, requested_size: Int(0), state, frames: Frames(None) }
    }

    fn live(block: &Block, size: u64) -> SegmentBlock {
        let (address, size, frames) = (Int(block.address), Int(size), Frames(block.tag.clone()));
        SegmentBlock { address, size, requested_size: size, state: "active_allocated", frames }
    }
}

/// An integer with as few bytes as possible: the viewer reads integers of nine bytes as `BigInt`.
#[derive(Clone, Copy, Debug)]
struct Int(u64);

impl Serialize for Int {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match i64::try_from(self.0) {
            Ok(int) => serializer.serialize_i64(int),
            Err(_) => serializer.serialize_u64(self.0),
        }
    }
}

/// A call stack. A log has none; the viewer shows a tag as its only frame.
#[derive(Debug)]
struct Frames(Option<Tag>);

#[derive(Serialize)]
struct Frame<'a> {
    filename: &'static str,
    line: u32,
    name: &'a Tag,
}

impl Serialize for Frames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|name| Frame { filename: "tag", line: 0, name }))
    }
}
