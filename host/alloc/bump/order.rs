//! What the next owners of the region are to wait for.
//!
//! ```text
//!   stream 1   work  free ●                           alloc: joined, for the reset was there
//!   stream 2      work      free ●                    alloc: waits for ◆, once
//!                            \     \
//!   stream 1                   reset ◆
//! ```
//!
//! I1: every free since the last reset lies before one of `frees`. I2: all that used the region before the last reset lies before
//! `start`. I3: streams in `joined` have waited for `start`, or were given it.

use crate::driver::{Event, Stream, StreamId};
use crate::error::Result;
use std::collections::{BTreeMap, HashSet};

#[derive(Default)]
pub(super) struct Order {
    /// By stream, with the moment at which they came here. One each, or as many as threads freed on the stream at one time.
    frees: BTreeMap<StreamId, Vec<(u64, Event)>>,
    moments: u64,
    start: Option<Event>,
    joined: HashSet<StreamId>,
}

/// A moment: what is recorded from then on lies behind what came before.
#[derive(Clone, Copy)]
pub(super) struct Moment(u64);

impl Order {
    pub fn now(&self) -> Moment {
        Moment(self.moments)
    }

    /// The event of a free, recorded after the moment `began`. On the same stream it lies behind all that had come by then.
    pub fn freed(&mut self, stream: StreamId, event: Event, Moment(began): Moment) {
        let of_stream = self.frees.entry(stream).or_default();
        of_stream.retain(|(moment, _)| *moment >= began);
        of_stream.push((self.moments, event));
        self.moments += 1;
    }

    /// Orders the stream after the last reset: one call of the driver's for each stream and reset.
    pub fn join(&mut self, stream: &Stream) -> Result<()> {
        let Some(start) = &self.start else { return Ok(()) };
        if !self.joined.contains(&stream.id()) {
            stream.wait(start)?;
            self.joined.insert(stream.id());
        }
        Ok(())
    }

    /// Orders the stream after all that used the region.
    pub fn gather(&mut self, stream: &Stream) -> Result<()> {
        self.join(stream)?;
        let others = self.frees.iter().filter(|(id, _)| **id != stream.id());
        others.flat_map(|(_, events)| events).try_for_each(|(_, event)| stream.wait(event))
    }

    /// The reset is where the stream is now. After a failure all is as before.
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
