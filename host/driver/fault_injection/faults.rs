//! The calls that fail, the calls that were made, and the resources that they acquired.

use super::calls::Call;
use super::clocks::{Clocks, Moment};
use crate::driver::Stream;
use crate::error::{Error, Result};
use crate::lock::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Calls with results that must be freed: memory, addresses, pages, mappings, blocks
/// of pools.
const ACQUIRES: [Call; 5] = [Call::Alloc, Call::Reserve, Call::Create, Call::Map, Call::PoolAlloc];

/// Which calls fail, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Never,
    Nth(usize),
    /// That call and all after it.
    From(usize),
}

/// The number of a stream that was created here.
fn number_of(stream: &Stream) -> usize {
    stream.raw_stream().addr()
}

type Hook = Box<dyn FnOnce() + Send>;

pub(super) struct State {
    calls: Vec<Call>,
    which: Which,
    /// Kinds of calls that fail regardless of their number.
    kinds: Vec<Call>,
    /// The error code of failing calls.
    code: u32,
    failed: Vec<Call>,
    hook: Option<(Call, Hook)>,
    /// Bytes held, by the call that returned them and their address or handle.
    held: BTreeMap<(Call, u64), u64>,
    /// Bytes held by pools that were dropped. Their addresses may have been reused since.
    lost: Vec<(Call, u64)>,
    pub(super) clocks: Clocks,
    pub(super) streams: usize,
    /// The last memory handle that was issued.
    handles: u64,
}

/// Failures to inject and calls made: of a device and everything created from it, or of one stream.
pub(crate) struct Faults {
    state: Mutex<State>,
    /// Whether an event stays pending until the host waits for it, its stream or the device.
    /// Otherwise it completes when the stream's worker reaches it.
    pub(super) keeps_pending: bool,
}

impl Faults {
    pub(super) fn new(keeps_pending: bool) -> Arc<Faults> {
        let state = State {
            calls: Vec::new(),
            which: Which::Never,
            kinds: Vec::new(),
            code: 999,
            failed: Vec::new(),
            hook: None,
            held: BTreeMap::new(),
            lost: Vec::new(),
            clocks: Clocks::default(),
            streams: 0,
            handles: 0,
        };
        Arc::new(Faults { state: Mutex::new(state), keeps_pending })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Counts a call, and fails it if requested.
    pub(super) fn call(&self, call: Call) -> Result<()> {
        let hook = self.state().hook.take_if(|(at, _)| *at == call);
        if let Some((_, hook)) = hook {
            hook();
        }
        let mut state = self.state();
        state.calls.push(call);
        let number = state.calls.len();
        let is_turn = match state.which {
            Which::Never => false,
            Which::Nth(nth) => number == nth,
            Which::From(first) => number >= first,
        };
        if !is_turn && !state.kinds.contains(&call) {
            return Ok(());
        }
        state.failed.push(call);
        let detail = format!("injected failure of call {number}");
        Err(Error::Driver { call: call.name(), code: state.code, name: "INJECTED".into(), detail })
    }

    /// Selects the calls that fail from now on, and their error code.
    pub fn tell(&self, which: Which, code: u32) {
        let mut state = self.state();
        (state.which, state.code) = (which, code);
    }

    /// Sets whether calls of these kinds fail from now on.
    pub fn fail_calls(&self, kinds: &[Call], fail: bool) {
        let mut state = self.state();
        state.kinds.retain(|kind| !kinds.contains(kind));
        if fail {
            state.kinds.extend(kinds);
        }
    }

    /// Sets whether event records, waits and queries fail from now on.
    pub fn fail(&self, fails: bool) {
        self.fail_calls(&[Call::Record, Call::Wait, Call::StreamQuery], fails);
    }

    /// Sets whether waits of the host for a stream fail from now on.
    pub fn fail_synchronize(&self, fails: bool) {
        self.fail_calls(&[Call::StreamSynchronize], fails);
    }

    /// Runs `hook` once, inside the next call of that kind.
    pub fn before(&self, call: Call, hook: impl FnOnce() + Send + 'static) {
        self.state().hook = Some((call, Box::new(hook)));
    }

    /// Number of calls, including failed ones.
    pub fn calls(&self) -> usize {
        self.state().calls.len()
    }

    /// All calls, in order.
    pub fn all_calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    pub fn calls_of(&self, kind: Call) -> usize {
        self.state().calls.iter().filter(|call| **call == kind).count()
    }

    pub fn records(&self) -> usize {
        self.calls_of(Call::Record)
    }

    pub fn waits(&self) -> usize {
        self.calls_of(Call::Wait)
    }

    /// The calls that failed.
    pub fn failed(&self) -> Vec<Call> {
        self.state().failed.clone()
    }

    /// Number of streams.
    pub fn streams(&self) -> usize {
        self.state().streams
    }

    /// Resources that were not freed: the call that acquired them, and their bytes.
    pub fn held(&self) -> Vec<(Call, u64)> {
        let state = self.state();
        state
            .held
            .iter()
            .map(|((call, _), bytes)| (*call, *bytes))
            .chain(state.lost.iter().copied())
            .collect()
    }

    pub(super) fn next_handle(&self) -> u64 {
        let mut state = self.state();
        state.handles += 1;
        state.handles
    }

    pub(super) fn record_acquired(&self, call: Call, handle: u64, bytes: u64) {
        assert!(ACQUIRES.contains(&call));
        let before = self.state().held.insert((call, handle), bytes);
        assert_eq!(before, None, "{call:?} at {handle:#x}, twice");
    }

    pub(super) fn record_released(&self, call: Call, handle: u64) {
        let was_there = self.state().held.remove(&(call, handle));
        assert!(was_there.is_some(), "{call:?} at {handle:#x} is freed, and was not allocated");
    }

    /// The owner of this resource was dropped.
    pub(super) fn record_leaked(&self, call: Call, handle: u64) {
        let mut state = self.state();
        let bytes = state.held.remove(&(call, handle));
        state.lost.extend(bytes.map(|bytes| (call, bytes)));
    }

    pub(super) fn holds(&self, call: Call, handle: u64) -> bool {
        self.state().held.contains_key(&(call, handle))
    }

    /// Records work on the stream that uses something.
    pub fn work(&self, stream: &Stream) -> Moment {
        self.state().clocks.work(number_of(stream))
    }

    /// Whether anything submitted to the stream from now on is ordered after `work`.
    pub fn is_after(&self, stream: &Stream, work: Moment) -> bool {
        self.state().clocks.is_after(number_of(stream), work)
    }
}
