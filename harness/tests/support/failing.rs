//! A subject whose second launch fails while the kernel of the first still runs.

use super::slots::{SlotPool, Slots, give_back_slots, grab_slots, stress_slots};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use warpheap::device_pools::Faults;
use warpheap::{Device, Event, LaunchConfig, Module, Stream, kernel_names};
use warpheap_device::kernel::Arg;
use warpheap_harness::kernels::bench::bench_spin;
use warpheap_harness::stress::{ExchangeArgs, Launched, Plan, Subject};
use warpheap_harness::{Error, Result};

/// Run time of the kernel that is still running when the next launch fails.
const SPIN_NANOS: u64 = 200_000_000;

/// Whether the subject was dropped after its kernel had ended.
pub static DROPPED_IDLE: AtomicBool = AtomicBool::new(false);

pub struct FailingPool {
    slots: SlotPool<false>,
    launched: RefCell<Option<Event>>,
}

impl Drop for FailingPool {
    fn drop(&mut self) {
        let event = self.launched.take().expect("a kernel was launched");
        DROPPED_IDLE.store(event.is_done().unwrap(), Ordering::Relaxed);
    }
}

// SAFETY: `SlotPool` upholds S1 to S5 for its pool and kernels. `exchange` launches a kernel that
// accesses no memory, on the given stream only (S4).
unsafe impl Subject for FailingPool {
    type Handle = Slots<false>;
    type Stress = stress_slots;
    type Grab = grab_slots;
    type GiveBack = give_back_slots;
    const STRESS: stress_slots = stress_slots;
    const GRAB: grab_slots = grab_slots;
    const GIVE_BACK: give_back_slots = give_back_slots;
    const NAME: &'static str = "failing";
    const LAUNCHED: Launched = Launched::NONE.handing_over(&kernel_names![bench_spin]);

    fn new(device: &Device, plan: &Plan) -> Result<Self> {
        Ok(FailingPool { slots: SlotPool::new(device, plan)?, launched: RefCell::default() })
    }
    fn handle(&self) -> Arg<Slots<false>> {
        self.slots.handle()
    }
    fn start(&self) -> u64 {
        self.slots.start()
    }
    fn reset(&mut self) -> Result<()> {
        self.slots.reset()
    }
    fn faults(&self) -> Result<Option<Faults>> {
        Ok(None)
    }
    fn agrees(&self, _: u64) -> Result<Option<bool>> {
        Ok(None)
    }
    fn is_exhausted(&self, _: &Plan, _: u64, _: u64) -> Result<bool> {
        Ok(true)
    }
    fn most_blocks(&self, plan: &Plan) -> u64 {
        self.slots.most_blocks(plan)
    }
    unsafe fn exchange(
        &self,
        module: &Module,
        stream: &Stream,
        _: &LaunchConfig,
        _: ExchangeArgs<Slots<false>>,
    ) -> Result<()> {
        if self.launched.borrow().is_some() {
            return Err(Error::WrongResult { what: "the second launch".into(), found: "none".into() });
        }
        // SAFETY: the kernel accesses no memory.
        unsafe { stream.launch(module, bench_spin, &LaunchConfig::linear(1, 1), (SPIN_NANOS,)) }?;
        self.launched.replace(Some(stream.record()?));
        Ok(())
    }
}
