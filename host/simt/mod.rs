//! Kernels on the CPU, one lane after another on the calling thread.

use std::panic::{AssertUnwindSafe, Location, catch_unwind, panic_any};
use std::time::Instant;
use warpheap_device::kernel::Kernel;
use warpheap_device::machine::{self, Collective, Coords, Deposits, Machine};
use warpheap_device::units::{LaneMask, WARP_SIZE};

/// How lanes are scheduled.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// Warps over OS threads.
    Parallel {
        /// How many OS threads.
        workers: usize,
    },
    /// One OS thread, lanes chosen from a seed.
    Replay {
        /// The seed.
        seed: u64,
    },
}

/// Blocks and threads of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Blocks.
    pub blocks: [u32; 3],
    /// Threads in a block.
    pub threads: [u32; 3],
}

/// What a run did.
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// Atomic operations.
    pub steps: u64,
    /// Of the choices made.
    pub schedule_hash: u64,
}

/// How a run failed.
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum SimtError {
    /// A lane panicked.
    #[error("{at:?} panicked: {message}")]
    Panicked {
        /// Which lane.
        at: Coords,
        /// Its message.
        message: String,
    },
    /// A lane trapped.
    #[error("{at:?} trapped")]
    Trapped {
        /// Which lane.
        at: Coords,
    },
}

/// Runs grids.
pub struct Executor {
    sm_count: u32,
}

struct Lane(Coords);
struct Exit;
struct Trap;

impl Machine for Lane {
    fn coords(&self) -> Coords {
        self.0
    }
    fn converged(&self, _: &'static Location<'static>) -> LaneMask {
        LaneMask::only(self.0.lane)
    }
    fn exchange(&self, mask: LaneMask, _: Collective, v: u64, at: &'static Location<'static>) -> Deposits {
        assert_eq!(mask, LaneMask::only(self.0.lane), "{at}: a collective of several lanes");
        [v; WARP_SIZE as usize]
    }
    fn sync_block(&self, _: &'static Location<'static>) {}
    fn step(&self) {}
    fn pause(&self, nanos: u32) {
        std::thread::sleep(std::time::Duration::from_nanos(nanos.into()));
    }
    fn clock(&self) -> u64 {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
    fn exit(&self) -> ! {
        panic_any(Exit)
    }
    fn trap(&self) -> ! {
        panic_any(Trap)
    }
}

fn points(of: [u32; 3]) -> impl Iterator<Item = [u32; 3]> {
    (0..of[2]).flat_map(move |z| (0..of[1]).flat_map(move |y| (0..of[0]).map(move |x| [x, y, z])))
}

impl Executor {
    /// An executor.
    pub fn new(mode: Mode) -> Self {
        let sm_count = match mode {
            Mode::Parallel { workers } => workers.max(1) as u32,
            Mode::Replay { .. } => 1,
        };
        Executor { sm_count }
    }

    /// Runs the grid to its end.
    pub fn run<K: Kernel>(&self, grid: Grid, args: K::Args) -> Result<Stats, SimtError> {
        let mut steps = 0;
        for block_idx in points(grid.blocks) {
            for (i, thread_idx) in points(grid.threads).enumerate() {
                let lane = Lane(Coords {
                    thread_idx,
                    block_idx,
                    block_dim: grid.threads,
                    grid_dim: grid.blocks,
                    lane: i as u32 % WARP_SIZE,
                    sm: 0,
                    sm_count: self.sm_count,
                });
                run_lane::<K>(&lane, args)?;
                steps += 1;
            }
        }
        Ok(Stats { steps, schedule_hash: 0 })
    }

    /// Multiprocessors.
    pub fn sm_count(&self) -> u32 {
        self.sm_count
    }
}

fn run_lane<K: Kernel>(lane: &Lane, args: K::Args) -> Result<(), SimtError> {
    // SAFETY: the lane outlives the guard.
    let _installed = unsafe { machine::install(lane) };
    // SAFETY: the launch's caller promised what the kernel asks.
    let Err(payload) = catch_unwind(AssertUnwindSafe(|| unsafe { K::run_thread(args) })) else {
        return Ok(());
    };
    if payload.is::<Exit>() {
        return Ok(());
    }
    if payload.is::<Trap>() {
        return Err(SimtError::Trapped { at: lane.0 });
    }
    let message = payload.downcast_ref::<&str>().map(|s| s.to_string());
    let message = message.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
    Err(SimtError::Panicked { at: lane.0, message })
}
