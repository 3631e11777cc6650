//! Which memory is allocated, and which work may still use the memory that was freed.
//!
//! ```text
//! live    │ block │      │ block │
//! freed           │ ●    │       │ ● ●│        ● the last work on a stream before the free
//! ```
//!
//! A block may be allocated for a stream if the next work of this stream is ordered after the last
//! work on each of its bytes (`clocks` of the fault injection).

use crate::driver::Stream;
use crate::driver::fault_injection::{Faults, Moment};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Ledger {
    /// Bytes of each live block, by its start.
    live: BTreeMap<u64, u64>,
    freed: Vec<Freed>,
}

#[derive(Clone)]
struct Freed {
    start: u64,
    end: u64,
    last: Arc<[Moment]>,
}

impl Ledger {
    /// Adds a block that was allocated for work on `stream`. Says what is wrong with it: it overlaps
    /// a live block, or earlier work may still use it.
    pub fn allocated(
        &mut self,
        faults: &Faults,
        (start, bytes): (u64, u64),
        stream: &Stream,
    ) -> Result<(), String> {
        let end = start + bytes;
        let below = self.live.range(..end).next_back().filter(|(at, length)| *at + *length > start);
        let overlaps = below.map(|(at, length)| format!("the live {length} B at {at:#x}"));
        let (meets, mut rest): (Vec<Freed>, Vec<Freed>) =
            self.freed.drain(..).partition(|of| start < of.end && of.start < end);
        let mut last = meets.iter().flat_map(|of| of.last.iter());
        let is_in_use = last.any(|work| !faults.is_after(stream, *work));
        // The new owner's last work comes after what was checked here.
        for of in meets {
            rest.extend((of.start < start).then(|| Freed { end: start, ..of.clone() }));
            rest.extend((end < of.end).then_some(Freed { start: end, ..of }));
        }
        self.freed = rest;
        self.live.insert(start, bytes);
        match overlaps {
            Some(other) => Err(format!("{bytes} B at {start:#x} overlap {other}")),
            None if is_in_use => Err(format!("{bytes} B at {start:#x} may still be in use")),
            None => Ok(()),
        }
    }

    /// The block was freed after work that uses it: `last`, with all work that comes before that.
    pub fn freed(&mut self, start: u64, last: &[Moment]) {
        if let Some(bytes) = self.live.remove(&start) {
            self.freed.push(Freed { start, end: start + bytes, last: last.into() });
        }
    }
}
