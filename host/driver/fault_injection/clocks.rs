//! Happens-before order of work: a vector clock for each stream, one for the host, and one for each
//! event.
//!
//! I1: for every stream, a clock has the last work of that stream that happens before the next work
//! of the clock's owner. I2: work that the host has waited for happens before all work that is
//! submitted to any stream afterwards.

use std::collections::BTreeMap;

/// For each stream number, the amount of its work that happened before.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(BTreeMap<usize, usize>);

/// A piece of work: its stream and its sequence number on that stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    stream: usize,
    work: usize,
}

#[derive(Default)]
pub(super) struct Clocks {
    streams: Vec<Clock>,
    host: Clock,
    /// Number of waits by the host. Events from before the last wait are done.
    pub waits: usize,
}

impl Clock {
    fn join(&mut self, other: &Clock) {
        for (stream, work) in &other.0 {
            let of = self.0.entry(*stream).or_default();
            *of = (*of).max(*work);
        }
    }
}

impl Clocks {
    /// Adds a stream. Returns its number, counted from 1.
    pub fn add(&mut self) -> usize {
        self.streams.push(Clock::default());
        self.streams.len()
    }

    fn of(&mut self, stream: usize) -> &mut Clock {
        let clock = &mut self.streams[stream - 1];
        clock.join(&self.host);
        clock
    }

    pub fn work(&mut self, stream: usize) -> Moment {
        let work = self.of(stream).0.entry(stream).or_default();
        *work += 1;
        Moment { stream, work: *work }
    }

    pub fn is_after(&mut self, stream: usize, Moment { stream: other, work }: Moment) -> bool {
        self.of(stream).0.get(&other).is_some_and(|last| *last >= work)
    }

    /// Records an event on the stream.
    pub fn mark(&mut self, stream: usize) -> Clock {
        self.of(stream).clone()
    }

    /// Makes the stream wait for an event.
    pub fn wait(&mut self, stream: usize, event: &Clock) {
        self.of(stream).join(event);
    }

    /// The host has observed that an event happened.
    pub fn host_saw(&mut self, event: &Clock) {
        self.host.join(event);
    }

    /// The host has waited for a stream.
    pub fn host_waited(&mut self, stream: usize) {
        let clock = self.mark(stream);
        self.host.join(&clock);
    }

    /// The host has waited for the device.
    pub fn host_waited_for_all(&mut self) {
        for clock in &self.streams {
            self.host.join(clock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_comes_after_what_it_or_the_host_has_waited_for() {
        let mut clocks = Clocks::default();
        let [one, two, three] = [(); 3].map(|()| clocks.add());
        let first = clocks.work(one);
        assert!(clocks.is_after(one, first) && !clocks.is_after(two, first));
        let event = clocks.mark(one);
        let second = clocks.work(one);
        clocks.wait(two, &event);
        assert!(clocks.is_after(two, first) && !clocks.is_after(two, second), "the event came before that");
        let event = clocks.mark(two);
        clocks.wait(three, &event);
        assert!(clocks.is_after(three, first), "through another one");
        let last = clocks.work(three);
        clocks.host_waited(three);
        assert!(clocks.is_after(one, last) && clocks.is_after(two, last) && !clocks.is_after(two, second));
        clocks.host_waited_for_all();
        assert!(clocks.is_after(two, second));
    }
}
