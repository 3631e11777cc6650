//! The memory that a pool holds from the device: segments, divided into blocks.
//!
//! ```text
//!   segment   | block | free   | block  | free: stream 7, number 12 |
//! ```
//!
//! I1: the free ranges and the blocks in `live` cover each segment without overlap.
//! I2: adjacent free ranges that are pending on the same stream, or not pending, are coalesced.
//! I3: work submitted to a stream before its free may use a pending range until its event
//! completes.
//! I4: `reserved` is the sum of the segments, `used` the sum of the live blocks.

use crate::driver::backend::{EventBackend, Range, StreamId};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Segments {
    segments: BTreeMap<u64, Segment>,
    /// Length in bytes by first address.
    live: BTreeMap<u64, u64>,
    reserved: u64,
    used: u64,
    /// The sequence number of the next free.
    next: u64,
}

struct Segment {
    bytes: u64,
    free: BTreeMap<u64, FreeRange>,
}

struct FreeRange {
    bytes: u64,
    pending_free: Option<PendingFree>,
}

/// Position of a stream when it freed memory. Sequence numbers increase with each free.
#[derive(Clone)]
pub(super) struct PendingFree {
    pub stream: StreamId,
    number: u64,
    pub event: Arc<dyn EventBackend>,
}

impl Segment {
    fn is_fully_free(&self) -> bool {
        self.free.values().any(|free| free.bytes == self.bytes && free.pending_free.is_none())
    }

    /// Inserts a free range and coalesces it with neighbours that are pending on the same stream
    /// (I2).
    fn insert(&mut self, mut start: u64, mut free: FreeRange) {
        let below = self.free.range(..start).next_back().map(|(at, of)| (*at, of.bytes));
        if let Some((at, bytes)) = below.filter(|(at, bytes)| at + bytes == start)
            && self.free[&at].joins(&free)
        {
            free = self.take(at).merged(free, bytes);
            start = at;
        }
        let end = start + free.bytes;
        if self.free.get(&end).is_some_and(|above| above.joins(&free)) {
            let above = self.take(end);
            let bytes = above.bytes;
            free = above.merged(free, bytes);
        }
        self.free.insert(start, free);
    }

    fn take(&mut self, at: u64) -> FreeRange {
        self.free.remove(&at).unwrap_or(FreeRange { bytes: 0, pending_free: None })
    }
}

impl FreeRange {
    fn joins(&self, other: &FreeRange) -> bool {
        self.pending_free.as_ref().map(|of| of.stream) == other.pending_free.as_ref().map(|of| of.stream)
    }

    /// Coalesces both ranges. Of two frees on one stream the later one is kept. `more` is the size
    /// of `self`.
    fn merged(self, other: FreeRange, more: u64) -> FreeRange {
        let later = match (self.pending_free, other.pending_free) {
            (Some(one), Some(two)) => Some(if one.number > two.number { one } else { two }),
            (one, two) => one.or(two),
        };
        FreeRange { bytes: other.bytes + more, pending_free: later }
    }
}

impl Segments {
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    pub fn used(&self) -> u64 {
        self.used
    }

    /// Segment and start of the first free range of at least `bytes` whose pending free satisfies
    /// `is_right`.
    fn find(&self, bytes: u64, is_right: impl Fn(Option<&PendingFree>) -> bool) -> Option<(u64, u64)> {
        let all = self
            .segments
            .iter()
            .flat_map(|(base, of)| of.free.iter().map(move |(at, free)| (base, at, free)));
        let mut found =
            all.filter(|(_, _, free)| free.bytes >= bytes && is_right(free.pending_free.as_ref()));
        found.next().map(|(base, at, _)| (*base, *at))
    }

    /// Allocates `bytes` from the start of a free range.
    fn cut(&mut self, base: u64, at: u64, bytes: u64) -> Option<u64> {
        let segment = self.segments.get_mut(&base)?;
        let free = segment.free.remove(&at)?;
        if free.bytes > bytes {
            segment
                .free
                .insert(at + bytes, FreeRange { bytes: free.bytes - bytes, pending_free: free.pending_free });
        }
        self.live.insert(at, bytes);
        self.used += bytes;
        Some(at)
    }

    /// Allocates `bytes` for work submitted to `stream` from now on.
    pub fn alloc(&mut self, bytes: u64, stream: StreamId) -> Option<u64> {
        let (base, at) =
            self.find(bytes, |pending_free| pending_free.is_none_or(|of| of.stream == stream))?;
        self.cut(base, at, bytes)
    }

    /// The pending free that [`alloc_pending`](Self::alloc_pending) would use: the oldest that is
    /// large enough.
    pub fn pending(&self, bytes: u64) -> Option<PendingFree> {
        let all = self.segments.values().flat_map(|of| of.free.values());
        let fit = all.filter(|free| free.bytes >= bytes).filter_map(|free| free.pending_free.as_ref());
        fit.min_by_key(|pending_free| pending_free.number).cloned()
    }

    /// Allocates `bytes` that are pending on `pending_free`, for a stream that waits for its event.
    pub fn alloc_pending(&mut self, bytes: u64, pending_free: &PendingFree) -> Option<u64> {
        let (base, at) = self.find(bytes, |of| of.is_some_and(|of| of.number == pending_free.number))?;
        self.cut(base, at, bytes)
    }

    pub fn is_live(&self, address: u64) -> bool {
        self.live.contains_key(&address)
    }

    /// Frees a live block, pending on `event`.
    pub fn free(&mut self, address: u64, stream: StreamId, event: Arc<dyn EventBackend>) {
        let Some(bytes) = self.live.remove(&address) else { return };
        self.used -= bytes;
        let number = self.next;
        self.next += 1;
        let free = FreeRange { bytes, pending_free: Some(PendingFree { stream, number, event }) };
        if let Some((_, segment)) = self.segments.range_mut(..=address).next_back() {
            segment.insert(address, free);
        }
    }

    pub fn add(&mut self, range: Range) {
        let free = BTreeMap::from([(range.address, FreeRange { bytes: range.bytes, pending_free: None })]);
        self.reserved += range.bytes;
        self.segments.insert(range.address, Segment { bytes: range.bytes, free });
    }

    /// Clears the pending state of frees whose event has completed.
    pub fn sweep(&mut self) {
        let happened = |pending_free: &PendingFree| pending_free.event.is_done().unwrap_or(false);
        for segment in self.segments.values_mut() {
            let is_over = |free: &FreeRange| free.pending_free.as_ref().is_some_and(happened);
            let over: Vec<u64> =
                segment.free.iter().filter(|(_, free)| is_over(free)).map(|(at, _)| *at).collect();
            for at in over {
                // A range that was coalesced into a neighbour is swept with it, or later.
                let Some(free) = segment.free.remove(&at) else { continue };
                segment.insert(at, FreeRange { bytes: free.bytes, pending_free: None });
            }
        }
    }

    /// Removes fully free segments while at least `keep` bytes remain.
    pub fn release(&mut self, keep: u64) -> Vec<Range> {
        let free = self.segments.iter().filter(|(_, segment)| segment.is_fully_free());
        let free: Vec<Range> = free.map(|(at, of)| Range { address: *at, bytes: of.bytes }).collect();
        let mut released = Vec::new();
        for range in free {
            if self.reserved - range.bytes >= keep {
                self.segments.remove(&range.address);
                self.reserved -= range.bytes;
                released.push(range);
            }
        }
        released
    }

    /// Removes all segments. Also returns the events of pending frees.
    pub fn remove_all(&mut self) -> (Vec<Range>, Vec<Arc<dyn EventBackend>>) {
        let segments = std::mem::take(&mut self.segments);
        let ranges = segments.iter().map(|(at, of)| Range { address: *at, bytes: of.bytes }).collect();
        let free = segments.into_values().flat_map(|of| of.free.into_values());
        (ranges, free.filter_map(|free| free.pending_free.map(|of| of.event)).collect())
    }

    /// Checks I1, I2 and I4.
    #[cfg(test)]
    pub fn check(&self) {
        for (base, segment) in &self.segments {
            let live = self.live.range(base..&(base + segment.bytes)).map(|(at, bytes)| (*at, *bytes));
            let mut all: Vec<_> = live.chain(segment.free.iter().map(|(at, of)| (*at, of.bytes))).collect();
            all.sort_unstable();
            let end = all.iter().fold(*base, |end, (at, bytes)| {
                assert_eq!(*at, end, "I1");
                at + bytes
            });
            assert_eq!(end, base + segment.bytes, "I1");
            for (at, free) in &segment.free {
                assert!(!segment.free.get(&(at + free.bytes)).is_some_and(|above| above.joins(free)), "I2");
            }
        }
        assert_eq!(self.used, self.live.values().sum::<u64>(), "I4");
        assert_eq!(self.reserved, self.segments.values().map(|of| of.bytes).sum::<u64>(), "I4");
    }
}
