//! What was given back on a stream, and may be in use until the stream comes to where that was.
//!
//! I1: each entry is once in `by_stream`, and its number and stream are in `by_age`. I2: numbers grow with the frees.

use crate::driver::{Event, StreamId};
use std::collections::BTreeMap;

pub(super) struct Pending<T> {
    by_stream: BTreeMap<(StreamId, u64), (Event, T)>,
    by_age: BTreeMap<u64, StreamId>,
    next: u64,
}

/// An entry that was taken out.
pub(super) struct Entry<T> {
    number: u64,
    pub stream: StreamId,
    /// Where the stream was when `item` was given back.
    pub event: Event,
    pub item: T,
}

impl<T> Pending<T> {
    pub fn new() -> Pending<T> {
        Pending { by_stream: BTreeMap::new(), by_age: BTreeMap::new(), next: 0 }
    }

    pub fn push(&mut self, stream: StreamId, event: Event, item: T) {
        let number = self.next;
        self.next += 1;
        self.put_back(Entry { number, stream, event, item });
    }

    /// What was given back last on that stream, whose later work may use it at once.
    pub fn take_of(&mut self, stream: StreamId) -> Option<Entry<T>> {
        let (&(_, number), _) = self.by_stream.range((stream, 0)..=(stream, u64::MAX)).next_back()?;
        self.take(stream, number)
    }

    /// What was given back first, on any stream: the likeliest to be done with.
    pub fn take_oldest(&mut self) -> Option<Entry<T>> {
        let (&number, &stream) = self.by_age.first_key_value()?;
        self.take(stream, number)
    }

    fn take(&mut self, stream: StreamId, number: u64) -> Option<Entry<T>> {
        self.by_age.remove(&number);
        let (event, item) = self.by_stream.remove(&(stream, number))?;
        Some(Entry { number, stream, event, item })
    }

    /// As if it had not been taken out.
    pub fn put_back(&mut self, entry: Entry<T>) {
        self.by_age.insert(entry.number, entry.stream);
        self.by_stream.insert((entry.stream, entry.number), (entry.event, entry.item));
    }

    #[cfg(test)]
    pub fn items(&self) -> impl Iterator<Item = T>
    where
        T: Copy,
    {
        self.by_stream.values().map(|(_, item)| *item)
    }

    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.by_stream.values().map(|(event, _)| event)
    }
}
