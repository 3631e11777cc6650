//! Blocks that several streams use: a pool does not reuse them before the work of all streams, and
//! the stream of the free does not wait for the others.
#![cfg(not(loom))]

use std::alloc::Layout;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use warpheap::host_pools::{CachingPool, DeviceAllocator};
use warpheap::{Device, DeviceBuffer, Error, LaunchConfig, Module, Stream};
use warpheap_bindings::pool::StreamUses;
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_device::thread as device_thread;

/// Kernels of [`copy_late`] wait while it is closed. Tests take turns.
static OPEN: AtomicBool = AtomicBool::new(false);

warpheap_device::kernel! {
    /// Waits for the gate, then copies a word.
    ///
    /// # Safety
    /// The words are live.
    unsafe fn copy_late(to: DeviceSlice<u32>, from: DeviceSlice<u32>) {
        while !OPEN.load(SeqCst) {
            device_thread::nanosleep(1000);
        }
        // SAFETY: the caller's promise.
        let word = unsafe { from.get(0) };
        // SAFETY: the caller's promise.
        unsafe { to.set(0, word.unwrap_or(0)) };
    }
}

warpheap_device::kernel! {
    /// Writes a word.
    ///
    /// # Safety
    /// The word is live.
    unsafe fn write(to: DeviceSlice<u32>, word: u32) {
        // SAFETY: the caller's promise.
        unsafe { to.set(0, word) };
    }
}

const LAYOUT: Layout = Layout::new::<[u32; 4096]>();
/// Nothing that the tests wait for takes so long.
const LIMIT: Duration = Duration::from_secs(60);
const ONE: LaunchConfig = LaunchConfig::linear(1, 1);

/// Closes the gate until the end of the test.
fn close_gate() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    OPEN.store(false, SeqCst);
    turn
}

/// Opens the gate when it is dropped.
struct Opener;

impl Drop for Opener {
    fn drop(&mut self) {
        OPEN.store(true, SeqCst);
    }
}

/// A pool with a block that holds 1, which a late kernel of each of `users` copies.
struct Setup {
    /// Dropped first: also after a failed test, the drops of the others wait for the kernels.
    opener: Opener,
    pool: CachingPool,
    uses: StreamUses,
    module: Module,
    owner: Stream,
    users: Vec<(Stream, DeviceBuffer<u32>)>,
    block: DevicePtr<u8>,
}

fn word(block: DevicePtr<u8>) -> DeviceSlice<u32> {
    // SAFETY: the block is aligned and has more bytes.
    unsafe { DeviceSlice::from_raw_parts(block.0.cast(), 1) }
}

impl Setup {
    fn new(users: usize) -> Setup {
        let device = Device::cpu();
        let module = device.native_module().unwrap();
        let owner = device.stream().unwrap();
        let pool = CachingPool::builder().build(&device).unwrap();
        let uses = StreamUses::new(&device);
        let block = pool.allocate(LAYOUT, &owner).unwrap();
        // SAFETY: the block is live.
        unsafe { owner.launch(&module, write, &ONE, (word(block), 1)) }.unwrap();
        let users = (0..users).map(|_| (device.stream().unwrap(), device.zeroed(1).unwrap()));
        let setup = Setup { opener: Opener, pool, uses, module, owner, users: users.collect(), block };
        for (user, copy) in &setup.users {
            user.wait(&setup.owner.record().unwrap()).unwrap();
            // SAFETY: the block and the buffer are live until the kernel has ended.
            unsafe { user.launch(&setup.module, copy_late, &ONE, (copy.slice(), word(block))) }.unwrap();
            setup.uses.record(block, user.clone());
        }
        setup
    }

    fn free(&self) -> warpheap::Result<()> {
        // SAFETY: the block is live, and `after` is ordered after its uses (P1, P2).
        let free = |after: &Stream| unsafe { self.pool.deallocate(self.block, LAYOUT, after) };
        self.uses.free(self.block, &self.owner, free)
    }

    /// Allocates on the stream of the free, and writes to the new block.
    fn overwrite(&self) -> DevicePtr<u8> {
        let next = self.pool.allocate(LAYOUT, &self.owner).unwrap();
        // SAFETY: the block is live.
        unsafe { self.owner.launch(&self.module, write, &ONE, (word(next), 2)) }.unwrap();
        next
    }

    /// Opens the gate. Every user must have found the old contents.
    fn finish(self) {
        drop(self.opener);
        for (user, copy) in &self.users {
            user.synchronize().unwrap();
            assert_eq!(copy.copy_to_vec().unwrap(), [1], "the block was reused while a stream read it");
        }
    }
}

fn address(block: DevicePtr<u8>) -> u64 {
    block.0.addr() as u64
}

/// Calls `body` on another thread, which must end within the limit.
fn in_time(body: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let (sender, receiver) = channel();
        scope.spawn(move || {
            body();
            sender.send(())
        });
        let ended = receiver.recv_timeout(LIMIT);
        // So that the thread ends in any case.
        if ended.is_err() {
            OPEN.store(true, SeqCst);
        }
        assert_eq!(ended, Ok(()), "it waited for a late kernel");
    });
}

#[test]
fn a_block_is_reused_after_the_work_of_all_recorded_streams() {
    for users in 1..=3 {
        let _turn = close_gate();
        let setup = Setup::new(users);
        setup.free().unwrap();
        assert_eq!(setup.pool.stats().live_blocks, 0);
        let next = setup.overwrite();
        assert_ne!(address(next), address(setup.block));
        // The stream of the free does not wait for the others.
        in_time(|| setup.owner.synchronize().unwrap());
        setup.finish();
    }
}

#[test]
fn without_a_recorded_stream_a_block_is_reused_at_once() {
    let _turn = close_gate();
    let [setup, other] = [Setup::new(0), Setup::new(1)];
    setup.uses.record(other.block, other.users[0].0.clone());
    setup.free().unwrap();
    assert_eq!(address(setup.overwrite()), address(setup.block));
    // The uses of a block end with its free.
    other.free().unwrap();
    other.finish();
}

#[test]
fn streams_stay_recorded_after_a_failed_free() {
    let _turn = close_gate();
    let setup = Setup::new(1);
    let failed = setup.uses.free(setup.block, &setup.owner, |_| Err(Error::NotReset { pool: "x" }));
    assert!(matches!(failed, Err(Error::NotReset { .. })));
    setup.free().unwrap();
    assert_ne!(address(setup.overwrite()), address(setup.block));
    setup.finish();
}

/// A stream whose handle does not exist any more fails as one of another device does.
#[test]
fn a_stream_that_fails_makes_the_free_wait_for_the_device() {
    let _turn = close_gate();
    let setup = Setup::new(1);
    setup.uses.record(setup.block, Device::cpu().stream().unwrap());
    thread::scope(|scope| {
        let (sender, receiver) = channel();
        let setup = &setup;
        scope.spawn(move || {
            let freed = setup.free();
            let _ = sender.send(());
            freed.unwrap();
            setup.overwrite();
        });
        let early = receiver.recv_timeout(Duration::from_millis(50));
        OPEN.store(true, SeqCst);
        assert_eq!(early, Err(RecvTimeoutError::Timeout), "it was freed before the late kernel had ended");
    });
    setup.finish();
}
