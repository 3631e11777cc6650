//! Lanes for unit tests: those of a warp, which all do the same, and a lane that is interrupted.

mod interrupted;
mod order;

pub use interrupted::{Ran, interrupted, interrupted_at};
pub use order::Order;

use crate::lanes::Group;
use crate::machine::{Collective, Coords, Deposits, Machine, SharedPieces, install};
use crate::units::{LaneMask, WARP_SIZE};
use core::any::TypeId;
use core::cell::{Cell, UnsafeCell};
use core::panic::Location;
use core::ptr::NonNull;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::vec::Vec;

/// A lane that waits for so long fails: another one does something else.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

const LANES: usize = WARP_SIZE as usize;
const NOTHING: Deposits = Deposits { words: [0; LANES], nonzero: LaneMask(0), union: 0 };

/// What the lanes of a warp share.
struct Meetings {
    /// Whether a lane runs. The others wait for it, or for a collective.
    is_running: bool,
    has_failed: bool,
    /// The masks of the collectives that wait for lanes, and the lanes that have come.
    come: Vec<[LaneMask; 2]>,
    words: [u64; LANES],
    /// The number of collectives of each lane, and the inputs of the last one.
    over: [(u32, Deposits); LANES],
    pieces: SharedPieces,
    atomics: u32,
}

/// A warp whose lanes are OS threads, of which one runs at a time.
struct TestWarp<'a> {
    order: Option<&'a Order<'a>>,
    lanes: LaneMask,
    at: Coords,
    meetings: Mutex<Meetings>,
    changed: Condvar,
}

// SAFETY: what the lanes share is behind the mutex. Pieces of shared memory stay where they are,
// and one lane runs at a time.
unsafe impl Sync for TestWarp<'_> {}

std::thread_local! {
    static LANE: Cell<u32> = const { Cell::new(0) };
    static INPUTS: UnsafeCell<Deposits> = const { UnsafeCell::new(NOTHING) };
    static TIME: Cell<u64> = const { Cell::new(0) };
    static ORDER: Cell<Option<NonNull<Order<'static>>>> = const { Cell::new(None) };
}

/// Orders the running lane after what the lanes of its last collective did before that.
pub fn order_lane() {
    if let Some(order) = ORDER.get() {
        // SAFETY: `on_ordered_lanes` keeps it while a lane runs on this OS thread.
        unsafe { order.as_ref() }.order();
    }
}

/// The clock of lanes in unit tests, also for `thread::global_timer_nanos`. It advances with each
/// reading by the same lane, so the places that a lane chooses by the time do not depend on the
/// speed of the machine.
pub fn clock() -> u64 {
    TIME.set(TIME.get() + 1);
    TIME.get()
}

impl TestWarp<'_> {
    fn look(&self) {
        self.order.into_iter().for_each(Order::look);
    }

    fn lock(&self) -> MutexGuard<'_, Meetings> {
        self.meetings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the lane may run and has been in `collectives` collectives.
    fn resume<'a>(&self, meetings: MutexGuard<'a, Meetings>, collectives: u32) -> MutexGuard<'a, Meetings> {
        let lane = LANE.get() as usize;
        let waits = |meetings: &mut Meetings| {
            !meetings.has_failed && (meetings.is_running || meetings.over[lane].0 < collectives)
        };
        let (mut meetings, waited) = self
            .changed
            .wait_timeout_while(meetings, LONGEST_WAIT, waits)
            .unwrap_or_else(PoisonError::into_inner);
        let is_alone = waited.timed_out() || meetings.has_failed;
        assert!(!is_alone, "lane {lane} waits for lanes that do not come");
        meetings.is_running = true;
        meetings
    }
}

// SAFETY: `exchange` waits for the lanes of the mask, and its result is the calling thread's own.
// All lanes do the same, so they are at the same location.
unsafe impl Machine for TestWarp<'_> {
    fn coords(&self) -> Coords {
        let [first, y, z] = self.at.thread_idx;
        Coords { thread_idx: [first + LANE.get(), y, z], lane: LANE.get(), ..self.at }
    }

    fn converged(&self, _: &'static Location<'static>) -> LaneMask {
        let is_apart = self.order.is_some_and(|order| order.is_apart);
        if is_apart { LaneMask::only(LANE.get()) } else { self.lanes }
    }

    fn exchange(
        &self,
        mask: LaneMask,
        what: Collective,
        value: u64,
        _: &'static Location<'static>,
    ) -> Option<NonNull<Deposits>> {
        self.look();
        let lane = LANE.get() as usize;
        let mut meetings = self.lock();
        let turn = meetings.over[lane].0;
        meetings.words[lane] = value;
        let i = meetings.come.iter().position(|[all, _]| *all == mask).unwrap_or_else(|| {
            meetings.come.push([mask, LaneMask(0)]);
            meetings.come.len() - 1
        });
        meetings.come[i][1].0 |= 1 << lane;
        if meetings.come[i][1] == mask {
            meetings.come.swap_remove(i);
            self.order.into_iter().for_each(|order| order.meet(mask, what == Collective::Sync));
            let mut all = Deposits { words: meetings.words, ..NOTHING };
            let members = || (0..LANES).filter(|lane| mask.contains(*lane as u32));
            for lane in members() {
                all.nonzero.0 |= u32::from(all.words[lane] != 0) << lane;
                all.union |= all.words[lane];
            }
            members().for_each(|lane| meetings.over[lane] = (meetings.over[lane].0 + 1, all));
        }
        meetings.is_running = false;
        self.changed.notify_all();
        let meetings = self.resume(meetings, turn + 1);
        let inputs = INPUTS.with(UnsafeCell::get);
        // SAFETY: this thread's, which has no reference to it during this call.
        unsafe { inputs.write(meetings.over[lane].1) };
        NonNull::new(inputs)
    }

    fn sync_block(&self, at: &'static Location<'static>) {
        self.exchange(self.lanes, Collective::Sync, 0, at);
    }

    fn shared_memory(&self, owner: TypeId, words: usize) -> NonNull<u64> {
        self.lock().pieces.piece(owner, words)
    }

    fn step(&self) {
        self.order.into_iter().for_each(Order::step);
        self.lock().atomics += 1;
    }

    fn pause(&self, _: u32) {}
}

/// What all lanes of a warp use. One lane runs at a time.
pub struct ForLanes<T>(T);

// SAFETY: `on_lanes` runs one lane at a time.
unsafe impl<T> Sync for ForLanes<T> {}

impl<T> ForLanes<T> {
    pub fn new(value: T) -> Self {
        ForLanes(value)
    }

    pub fn get(&self) -> &T {
        &self.0
    }
}

/// What the lanes of a warp did.
pub struct Done<R> {
    /// The result of each lane.
    pub results: Vec<R>,
    /// Atomic operations of all lanes.
    pub atomics: u32,
    /// Collectives of the first lane.
    pub collectives: u32,
}

/// Runs `run` on the lanes `mask` of a warp. Lane 0 of it is at `at`.
pub fn on_lanes<R: Send>(mask: u32, at: Coords, run: impl Fn(Group) -> R + Sync) -> Done<R> {
    on_ordered_lanes(None, mask, at, run)
}

/// The same, with a check of what the lanes do.
pub fn on_ordered_lanes<R: Send>(
    order: Option<&Order<'_>>,
    mask: u32,
    at: Coords,
    run: impl Fn(Group) -> R + Sync,
) -> Done<R> {
    order.into_iter().for_each(Order::begin);
    let meetings = Mutex::new(Meetings {
        is_running: false,
        has_failed: false,
        come: Vec::new(),
        words: [0; LANES],
        over: [(0, NOTHING); LANES],
        pieces: SharedPieces::default(),
        atomics: 0,
    });
    let time = clock();
    let warp = &TestWarp { order, lanes: LaneMask(mask), at, meetings, changed: Condvar::new() };
    let lane = &|lane: u32| {
        /// Lets the other lanes run.
        struct End<'a>(&'a TestWarp<'a>);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                if !std::thread::panicking() {
                    self.0.look();
                }
                let mut meetings = self.0.lock();
                meetings.has_failed |= std::thread::panicking();
                meetings.is_running = false;
                self.0.changed.notify_all();
            }
        }
        LANE.set(lane);
        TIME.set(time << 16);
        ORDER.set(warp.order.map(|order| NonNull::from(order).cast()));
        // SAFETY: the warp outlives the guard, which is the only one of this thread.
        let _installed = unsafe { install(warp) };
        drop(warp.resume(warp.lock(), 0));
        let _end = End(warp);
        // SAFETY: all lanes of the mask do the same.
        run(unsafe { Group::of(warp.lanes) })
    };
    let results = std::thread::scope(|scope| {
        let lanes = (0..WARP_SIZE).filter(|lane| warp.lanes.contains(*lane));
        let threads: Vec<_> = lanes.map(|i| scope.spawn(move || lane(i))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let meetings = warp.lock();
    Done { results, atomics: meetings.atomics, collectives: meetings.over[warp.lanes.leader() as usize].0 }
}
