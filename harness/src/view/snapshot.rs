//! A log of a host pool as a snapshot of PyTorch's allocator, pickled.
//!
//! The snapshot has one device. Its trace has every event of the log, written while it is read; its
//! segments are the address ranges of all exported blocks, with the blocks that are live at the
//! end.

use super::trace::BUFFER;
use serde::ser::{Error, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_pickle::SerOptions;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Read, Write};
use warpheap::Result;
use warpheap_harness::pool_tools::timeline::{Block, EventKind, Events, Tag};

/// Writes `events` while they are read.
pub fn pytorch<R: Read>(events: &mut Events<R>, to: &mut dyn Write) -> io::Result<()> {
    let log = RefCell::new((events, Extents::default()));
    let snapshot = Snapshot { device_traces: [Trace(&log)], segments: Segments(&log) };
    let mut to = BufWriter::with_capacity(BUFFER, to);
    serde_pickle::to_writer(&mut to, &snapshot, SerOptions::new()).map_err(io::Error::other)?;
    to.flush()
}

/// The trace is first: the segments are known at its end.
#[derive(Serialize)]
struct Snapshot<T, S> {
    device_traces: [T; 1],
    segments: S,
}

/// The events of a log, and the address ranges of the blocks so far.
type ReadLog<'a, R> = RefCell<(&'a mut Events<R>, Extents)>;

/// All events, which are serialised once, while they are read.
struct Trace<'a, 'b, R>(&'a ReadLog<'b, R>);

/// The segments of the events that have been read when they are serialised.
struct Segments<'a, 'b, R>(&'a ReadLog<'b, R>);

/// A value of the snapshot.
enum Item {
    Int(u64),
    False,
    Text(&'static str),
    Tag(Tag),
    List(Vec<Item>),
    Dict(Vec<(&'static str, Item)>),
}

use Item::{Dict, False, Int, List, Text};

impl Serialize for Item {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            // With as few bytes as possible: the viewer reads integers of nine bytes as `BigInt`.
            Int(int) => match i64::try_from(*int) {
                Ok(int) => serializer.serialize_i64(int),
                Err(_) => serializer.serialize_u64(*int),
            },
            False => serializer.serialize_bool(false),
            Text(text) => serializer.serialize_str(text),
            Item::Tag(tag) => serializer.serialize_str(tag),
            List(items) => serializer.collect_seq(items),
            Dict(items) => serializer.collect_map(items.iter().map(|(name, item)| (name, item))),
        }
    }
}

/// A call stack. A log has none; the viewer shows a tag as its only frame.
fn frames(tag: Option<&Tag>) -> Item {
    let frame =
        |tag: &Tag| Dict(vec![("filename", Text("tag")), ("line", Int(0)), ("name", Item::Tag(tag.clone()))]);
    List(tag.map(frame).into_iter().collect())
}

impl<R: Read> Serialize for Trace<'_, '_, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (events, extents) = &mut *self.0.borrow_mut();
        let mut sequence = serializer.serialize_seq(None)?;
        for event in events {
            let event = event.map_err(S::Error::custom)?;
            let Block { address, bytes, stream, ref tag, .. } = event.block;
            let at = ("addr", address);
            let actions: &[_] = match event.kind {
                EventKind::Alloc => &[("alloc", at)],
                EventKind::Free | EventKind::Lost => &[("free_requested", at), ("free_completed", at)],
                // A log does not have the free memory of the device.
                EventKind::AllocFailure => &[("oom", ("device_free", 0))],
                // The format has no such action. The block stays live.
                _ => &[],
            };
            if event.kind == EventKind::Alloc {
                extents.add(address, bytes, stream);
            }
            for &(action, (field, value)) in actions {
                sequence.serialize_element(&Dict(vec![
                    ("action", Text(action)),
                    (field, Int(value)),
                    ("size", Int(bytes)),
                    ("stream", Int(stream)),
                    ("time_us", Int(event.time / 1000)),
                    ("frames", frames(tag.as_ref())),
                ]))?;
            }
        }
        sequence.end()
    }
}

impl<R: Read> Serialize for Segments<'_, '_, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (events, extents) = &*self.0.borrow();
        let live = events.live();
        let live: BTreeMap<u64, &Block> = live.iter().map(|block| (block.address, block)).collect();
        serializer.collect_seq(extents.0.iter().map(|(start, extent)| {
            segment(*start, extent, live.range(start..&extent.end).map(|(_, block)| *block))
        }))
    }
}

/// A segment, as `torch.cuda.memory_snapshot` describes it. Its blocks cover it, in address order.
fn segment<'a>(start: u64, extent: &Extent, live: impl Iterator<Item = &'a Block>) -> Item {
    let block = |address: u64, size: u64, state, requested: u64, tag: Option<&Tag>| {
        Dict(vec![
            ("address", Int(address)),
            ("size", Int(size)),
            ("requested_size", Int(requested)),
            ("state", Text(state)),
            ("frames", frames(tag)),
        ])
    };
    let (mut blocks, mut next, mut allocated) = (Vec::new(), start, 0);
    let mut live = live.peekable();
    while let Some(one) = live.next() {
        if next < one.address {
            blocks.push(block(next, one.address - next, "inactive", 0, None));
        }
        // In an inconsistent log, blocks may overlap.
        let end = live.peek().map_or(extent.end, |after| after.address);
        let size = one.bytes.min(end - one.address);
        blocks.push(block(one.address, size, "active_allocated", size, one.tag.as_ref()));
        (next, allocated) = (one.address + size, allocated + size);
    }
    if next < extent.end {
        blocks.push(block(next, extent.end - next, "inactive", 0, None));
    }
    Dict(vec![
        ("device", Int(0)),
        ("address", Int(start)),
        ("total_size", Int(extent.end - start)),
        ("allocated_size", Int(allocated)),
        ("active_size", Int(allocated)),
        ("requested_size", Int(allocated)),
        ("stream", Int(extent.stream)),
        ("segment_type", Text("large")),
        ("segment_pool_id", List(vec![Int(0), Int(0)])),
        ("is_expandable", False),
        ("frames", frames(None)),
        ("blocks", List(blocks)),
    ])
}

/// Ranges that are less than this apart belong together. Device memory is mapped in pieces of this
/// size, so nothing else can be between them.
const GAP: u64 = 2 << 20;

/// An address range: the address after the last, and the stream of its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    end: u64,
    stream: u64,
}

/// Disjoint ranges, at least [`GAP`] apart, by their first address.
#[derive(Debug, Default)]
struct Extents(BTreeMap<u64, Extent>);

impl Extents {
    /// Adds the range of a block.
    fn add(&mut self, address: u64, bytes: u64, stream: u64) {
        let (mut start, mut new) = (address, Extent { end: address.saturating_add(bytes), stream });
        if let Some((first, before)) = self.0.range(..=address).next_back() {
            if new.end <= before.end {
                return;
            }
            if address < before.end.saturating_add(GAP) {
                (start, new.stream) = (*first, before.stream);
            }
        }
        while let Some((&first, after)) = self.0.range(start..new.end.saturating_add(GAP)).next() {
            new.end = new.end.max(after.end);
            self.0.remove(&first);
        }
        self.0.insert(start, new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(blocks: &[(u64, u64)]) -> Vec<(u64, u64, u64)> {
        let mut extents = Extents::default();
        (1..).zip(blocks).for_each(|(stream, (address, bytes))| extents.add(*address, *bytes, stream));
        extents.0.iter().map(|(start, extent)| (*start, extent.end, extent.stream)).collect()
    }

    #[test]
    fn ranges_close_to_each_other_are_merged_and_have_the_stream_of_their_first_block() {
        assert_eq!(ranges(&[(100, 50), (100, 20), (120, 30)]), [(100, 150, 1)]);
        assert_eq!(ranges(&[(GAP, 8), (GAP + 100, 8)]), [(GAP, GAP + 108, 1)]);
        assert_eq!(ranges(&[(0, 8), (8 + GAP, 8)]), [(0, 8, 1), (8 + GAP, 16 + GAP, 2)]);
        assert_eq!(ranges(&[(0, 8), (16 + 2 * GAP, 8), (8 + GAP, 8)]).len(), 3);
        assert_eq!(ranges(&[(0, 8), (2 * GAP, 8), (GAP, 8)]), [(0, 2 * GAP + 8, 1)], "the middle joins both");
        assert_eq!(ranges(&[(u64::MAX - 4, 100), (u64::MAX - 90, 10)]), [(u64::MAX - 90, u64::MAX, 2)]);
    }
}
