//! The calls that fail, the calls that were made, and the resources that they acquired.

use super::clocks::{Clocks, Moment};
use super::device::faulty_device;
use crate::driver::{Device, Stream};
use crate::error::{Error, Result};
use crate::lock::lock;
use std::collections::BTreeMap;
use std::fmt;
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

// The driver calls that are counted.

macro_rules! calls {
    ($($call:ident $name:literal;)+) => {
        /// A driver call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Call {
            $($call),+
        }

        impl Call {
            /// The name of the driver function.
            pub fn name(self) -> &'static str {
                match self {
                    $(Call::$call => $name),+
                }
            }
        }
    };
}

calls! {
    Info "cuMemGetInfo";
    Alloc "cuMemAlloc";
    Free "cuMemFree";
    VirtualMemory "cuMemGetAllocationGranularity";
    Reserve "cuMemAddressReserve";
    Unreserve "cuMemAddressFree";
    Create "cuMemCreate";
    Release "cuMemRelease";
    Map "cuMemMap";
    Allow "cuMemSetAccess";
    Unmap "cuMemUnmap";
    NewPool "cuMemPoolCreate";
    DefaultPool "cuDeviceGetDefaultMemPool";
    CurrentPool "cuDeviceGetMemPool";
    PoolAlloc "cuMemAllocFromPoolAsync";
    PoolFree "cuMemFreeAsync";
    PoolTrim "cuMemPoolTrimTo";
    PoolGet "cuMemPoolGetAttribute";
    PoolSet "cuMemPoolSetAttribute";
    Synchronize "cuCtxSynchronize";
    Write "cuMemcpyHtoD";
    Read "cuMemcpyDtoH";
    Fill "cuMemsetD8";
    NewStream "cuStreamCreate";
    StreamWrite "cuMemcpyHtoDAsync";
    StreamRead "cuMemcpyDtoHAsync";
    StreamCopy "cuMemcpyDtoDAsync";
    StreamFill "cuMemsetD8Async";
    StreamSynchronize "cuStreamSynchronize";
    StreamQuery "cuStreamQuery";
    Launch "cuLaunchKernel";
    Record "cuEventRecord";
    Wait "cuStreamWaitEvent";
    EventQuery "cuEventQuery";
    EventSynchronize "cuEventSynchronize";
    Module "cuModuleLoadDataEx";
}

// Runs a scenario once for each of its driver calls, with a failure at that call.
//
// A scenario uses the device of a [`Run`] and drops everything that it created. It makes fallible
// calls through [`attempt`](Run::attempt) or [`must`](Run::must), which retry as a program would.
// The run then checks that nothing is left, neither with the driver nor in the device's registry.

/// `CUDA_ERROR_UNKNOWN`.
const BROKEN: u32 = 999;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const NO_MEMORY: u32 = 2;
/// Device memory in bytes.
const MEMORY: u64 = 64 << 20;
/// A call that fails once succeeds at the second attempt.
const ATTEMPTS: usize = 2;

/// One run of a scenario, on its own device.
pub(crate) struct Run {
    pub device: Device,
    pub faults: Arc<Faults>,
    name: &'static str,
    which: Which,
    /// Whether the driver recovers when a call that must succeed has failed [`ATTEMPTS`] times.
    recovers: bool,
    /// Resources of constructors that failed: no object exists that could free them.
    excused: Vec<(Call, u64)>,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}, failed: {:?}", self.name, self.which, self.faults.failed())
    }
}

/// Whether the error names the injected failure of a driver call.
pub(crate) fn is_injected(error: &Error) -> bool {
    let text = error.to_string();
    text.contains("INJECTED") && text.contains("cu")
}

impl Run {
    fn new(name: &'static str, which: Which, code: u32, recovers: bool) -> Run {
        let (device, faults) = faulty_device(MEMORY);
        faults.tell(which, code);
        Run { device, faults, name, which, recovers, excused: Vec::new() }
    }

    /// A run without failures.
    pub fn unharmed(name: &'static str) -> Run {
        Run::new(name, Which::Never, BROKEN, true)
    }

    /// Whether the driver recovers in the end.
    pub fn recovers(&self) -> bool {
        self.recovers
    }

    /// Ends the failures of a run in which all calls from one on fail.
    pub fn recover(&self) {
        if let Which::From(_) = self.which {
            self.faults.tell(Which::Never, 0);
        }
    }

    /// Calls `call`, and retries if the driver failed. `None` if every attempt failed because the
    /// driver keeps failing.
    pub fn attempt<T>(&self, mut call: impl FnMut() -> Result<T>) -> Option<T> {
        for _ in 0..ATTEMPTS {
            match call() {
                Ok(done) => return Some(done),
                Err(error) => assert!(is_injected(&error), "{self}: {error}"),
            }
        }
        assert!(matches!(self.which, Which::From(_)), "{self}: it fails a second time");
        None
    }

    /// Calls `call` until it succeeds: the driver recovers if every attempt failed. `None` only if
    /// it never recovers.
    pub fn must<T>(&self, mut call: impl FnMut() -> Result<T>) -> Option<T> {
        let done = self.attempt(&mut call);
        if done.is_some() || !self.recovers {
            return done;
        }
        self.recover();
        self.attempt(call)
    }

    /// Calls a constructor, and retries if the driver failed. Resources that it acquired and could
    /// not return stay with the driver.
    pub fn construct<T>(&mut self, mut call: impl FnMut() -> Result<T>) -> Option<T> {
        let done = self.attempt(&mut call);
        if done.is_some() || !self.recovers {
            return done;
        }
        self.excused = self.faults.held();
        self.recover();
        self.attempt(call)
    }

    fn finish(self) -> Vec<Call> {
        let held = self.faults.held();
        assert!(!self.recovers || held == self.excused, "{self}: {held:?} is left");
        assert_eq!(self.device.memory_in_use(), (0, 0), "{self}");
        self.faults.all_calls()
    }
}

/// All driver calls of one run.
fn run(
    name: &'static str,
    (which, code, recovers): (Which, u32, bool),
    scenario: impl Fn(&mut Run),
) -> Vec<Call> {
    let mut run = Run::new(name, which, code, recovers);
    scenario(&mut run);
    run.finish()
}

/// All driver calls of a run without failures.
fn calls_of(name: &'static str, scenario: impl Fn(&mut Run)) -> Vec<Call> {
    run(name, (Which::Never, BROKEN, true), scenario)
}

/// Each call fails once and leaks nothing. Returns all calls of a run without failures.
pub(crate) fn each_call_fails_once(name: &'static str, scenario: impl Fn(&mut Run)) -> Vec<Call> {
    let all = calls_of(name, &scenario);
    for code in [BROKEN, NO_MEMORY] {
        for nth in 1..=all.len() {
            let these = run(name, (Which::Nth(nth), code, true), |run| {
                scenario(run);
                assert_eq!(run.faults.failed(), [all[nth - 1]], "{run}: call {nth}");
            });
            assert_eq!(these[..nth], all[..nth], "{name}: before call {nth}");
        }
    }
    all
}

/// All calls fail from each call on, until the driver recovers.
pub(crate) fn all_calls_fail_for_a_while(name: &'static str, scenario: impl Fn(&mut Run)) {
    let all = calls_of(name, &scenario);
    for (first, code) in (1..=all.len()).flat_map(|first| [(first, BROKEN), (first, NO_MEMORY)]) {
        run(name, (Which::From(first), code, true), &scenario);
    }
}

/// All calls fail from each call on. No drop panics, and the device regards nothing as allocated.
pub(crate) fn all_calls_fail_for_good(name: &'static str, scenario: impl Fn(&mut Run)) {
    let all = calls_of(name, &scenario);
    for first in 1..=all.len() {
        run(name, (Which::From(first), BROKEN, false), &scenario);
    }
}
