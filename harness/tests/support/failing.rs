//! A subject whose second launch fails while the kernel of the first still runs.

use super::slots::{SOUND, SlotPool, Slots, exhaust_slots, free_all_slots, stress_slots};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use warpheap::{Device, Error, Event, LaunchConfig, Module, Stream};
use warpheap_device::kernel::{Arg, Kernel};
use warpheap_harness::Result;
use warpheap_harness::kernels::bench::bench_spin;
use warpheap_harness::stress::{ExchangeArgs, KernelWith, Kernels, Plan, Subject};

/// Run time of the kernel that is still running when the next launch fails.
const SPIN_NANOS: u64 = 200_000_000;

/// Whether the subject was dropped after its kernel had ended.
pub static DROPPED_IDLE: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The end of the first launch.
    static LAUNCHED: RefCell<Option<Event>> = const { RefCell::new(None) };
}

pub struct FailingPool(SlotPool<SOUND>);

impl Drop for FailingPool {
    fn drop(&mut self) {
        let event = LAUNCHED.take().expect("a kernel was launched");
        DROPPED_IDLE.store(event.is_done().unwrap(), Ordering::Relaxed);
    }
}

/// Spins in the first launch. The second launch fails.
struct FailingExchange;

impl KernelWith<ExchangeArgs<Slots<SOUND>>> for FailingExchange {
    fn name(&self) -> &'static str {
        bench_spin::NAME
    }

    unsafe fn launch(
        &self,
        stream: &Stream,
        module: &Module,
        _: &LaunchConfig,
        _: ExchangeArgs<Slots<SOUND>>,
    ) -> warpheap::Result<()> {
        if LAUNCHED.with_borrow(Option::is_some) {
            let requested = "the second launch".into();
            return Err(Error::NoDevice { requested, found: "none".into(), advice: String::new() });
        }
        // SAFETY: the kernel accesses no memory.
        unsafe { stream.launch(module, bench_spin, &LaunchConfig::linear(1, 1), (SPIN_NANOS,)) }?;
        LAUNCHED.set(Some(stream.record()?));
        Ok(())
    }
}

// SAFETY: `SlotPool` upholds S1 to S5 for its pool and kernels. The kernel of `FailingExchange`
// accesses no memory (S2).
unsafe impl Subject for FailingPool {
    type Handle = Slots<SOUND>;
    const KERNELS: Kernels<Slots<SOUND>> =
        Kernels::new(&stress_slots, &exhaust_slots, &free_all_slots).exchange(&FailingExchange);
    const NAME: &'static str = "failing";

    fn new(device: &Device, plan: &Plan) -> Result<Self> {
        Ok(FailingPool(SlotPool::new(device, plan)?))
    }
    fn handle(&self) -> Arg<Slots<SOUND>> {
        self.0.handle()
    }
    fn start(&self) -> u64 {
        self.0.start()
    }
    fn reset(&mut self) -> Result<()> {
        self.0.reset()
    }
    fn is_exhausted(&self, _: &Plan, _: u64, _: u64) -> Result<bool> {
        Ok(true)
    }
    fn most_blocks(&self, plan: &Plan) -> u64 {
        self.0.most_blocks(plan)
    }
}
