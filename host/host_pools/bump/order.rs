//! The ordering of a region's reuse: the events that later allocations of the region must wait for.
//!
//! ```text
//! stream 1   work  free ●                       alloc: joined already by the reset
//! stream 2      work      free ●                alloc: waits for ◆, once
//!                           \     \
//! stream 1                   reset ◆
//! ```
//!
//! I1: every free since the last reset is before one of the events in `frees`. I2: all use of the
//! region before the last reset is before `start`. I3: the streams in `joined` have waited for
//! `start`, or recorded it.

use crate::driver::{Event, Stream, StreamId};
use crate::error::Result;
use std::collections::{BTreeMap, HashSet};

#[derive(Default)]
pub(super) struct ResetOrder {
    /// By stream, each event with the moment of its insertion. One event per stream, or one per
    /// thread that freed on the stream at the same time.
    frees: BTreeMap<StreamId, Vec<(u64, Event)>>,
    moments: u64,
    start: Option<Event>,
    joined: HashSet<StreamId>,
}

/// A moment: frees that came before it are covered by every event recorded after it on their
/// stream.
#[derive(Clone, Copy)]
pub(super) struct Moment(u64);

impl ResetOrder {
    pub fn now(&self) -> Moment {
        Moment(self.moments)
    }

    /// Adds the event of a free, recorded after the moment `began`. It replaces all events of this
    /// stream that were inserted before `began`, because they complete first.
    pub fn freed(&mut self, stream: StreamId, event: Event, Moment(began): Moment) {
        let of_stream = self.frees.entry(stream).or_default();
        of_stream.retain(|(moment, _)| *moment >= began);
        of_stream.push((self.moments, event));
        self.moments += 1;
    }

    /// Orders the stream after the last reset: one driver call for each stream and reset.
    pub fn join(&mut self, stream: &Stream) -> Result<()> {
        let Some(start) = &self.start else { return Ok(()) };
        if !self.joined.contains(&stream.id()) {
            stream.wait(start)?;
            self.joined.insert(stream.id());
        }
        Ok(())
    }

    /// Orders the stream after all use of the region.
    pub fn gather(&mut self, stream: &Stream) -> Result<()> {
        self.join(stream)?;
        let others = self.frees.iter().filter(|(id, _)| **id != stream.id());
        others.flat_map(|(_, events)| events).try_for_each(|(_, event)| stream.wait(event))
    }

    /// Makes the current point of the stream the last reset. A failure changes nothing.
    pub fn restart(&mut self, stream: &Stream) -> Result<()> {
        let start = stream.record()?;
        (self.start, self.joined) = (Some(start), HashSet::from([stream.id()]));
        self.frees.clear();
        Ok(())
    }

    #[cfg(test)]
    pub fn events(&self) -> usize {
        self.frees.values().map(Vec::len).sum()
    }
}
