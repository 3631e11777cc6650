//! Serialises items one by one, without collecting them.

use serde::ser::{Error, SerializeSeq};
use serde::{Serialize, Serializer};
use std::cell::RefCell;
use std::collections::VecDeque;
use warpheap::Result;
use warpheap_harness::pool_tools::timeline::Event;

/// Converts events of a log to items of a file.
pub trait Format {
    /// An item.
    type Item;

    /// Adds the items of an event.
    fn add(&mut self, event: Event, to: &mut VecDeque<Self::Item>);
}

/// The items of a sequence of events.
pub struct Items<I, F: Format> {
    pub events: I,
    pub format: F,
    ready: VecDeque<F::Item>,
}

impl<I, F: Format> Items<I, F> {
    /// The items of `events`, after those of `first`.
    pub fn new(events: I, format: F, first: impl IntoIterator<Item = F::Item>) -> Items<I, F> {
        Items { events, format, ready: first.into_iter().collect() }
    }
}

impl<I: Iterator<Item = Result<Event>>, F: Format> Iterator for Items<I, F> {
    type Item = Result<F::Item>;

    fn next(&mut self) -> Option<Result<F::Item>> {
        while self.ready.is_empty() {
            match self.events.next()? {
                Ok(event) => self.format.add(event, &mut self.ready),
                Err(error) => return Some(Err(error)),
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

/// A sequence that is serialised once, while it is produced.
#[derive(Debug)]
pub struct Streamed<'a, I>(pub &'a RefCell<I>);

impl<T: Serialize, I: Iterator<Item = Result<T>>> Serialize for Streamed<'_, I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(None)?;
        for item in &mut *self.0.borrow_mut() {
            sequence.serialize_element(&item.map_err(S::Error::custom)?)?;
        }
        sequence.end()
    }
}
