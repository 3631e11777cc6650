//! Races of host threads: one thread launches a kernel while another frees the kernel's memory or
//! changes the pool. The tests stop each driver call at the point where a race would occur.

use crate::device_pools::{Bump, FreeList, Heap};
use crate::driver::fault_injection::{Call, Faults, faulty_device};

use crate::driver::{Device, GrowableBuffer, LaunchConfig, Module, Stream};
use crate::error::{Dangling, Error};
use crate::host_pools::{DeviceAllocator, DriverPool};
use std::alloc::Layout;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;

const MIB: u64 = 1 << 20;
/// Timeout after which a thread that neither calls the driver nor waits counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);
const ONE_THREAD: LaunchConfig = LaunchConfig::linear(1, 1);

kernel! {
    /// # Safety
    /// `bytes` is live, and nothing else accesses it.
    unsafe fn store(bytes: DeviceSlice<u8>) {
        // SAFETY: `bytes` is live and the grid has one thread, so no other thread accesses it.
        unsafe { bytes.set(0, 1) };
    }
}

/// Launches [`store`] of the native module on memory that may have been freed.
fn launch(stream: &Stream, bytes: DeviceSlice<u8>) -> crate::Result<()> {
    launch_of(&stream.device().native_module()?, stream, bytes)
}

/// Launches [`store`] of `module` on memory that may have been freed.
fn launch_of(module: &Module, stream: &Stream, bytes: DeviceSlice<u8>) -> crate::Result<()> {
    // SAFETY: P1, P3: the launch fails if `bytes` is not live, which these tests check, and no
    // other kernel runs. P2: the native module. P4 to P6: `store` uses no pool, no destructor and
    // no thread-local variable.
    unsafe { stream.launch(module, store, &ONE_THREAD, (bytes,)) }
}

/// Waits until the other thread makes `call` (true) or waits in the device's registry (false).
fn comes(device: &Device, faults: &Faults, call: Call, before: usize) -> bool {
    let start = Instant::now();
    while faults.calls_of(call) == before {
        if device.registry().waiting() > 0 {
            // A waiting thread makes the call only after it is woken, which happens later.
            return faults.calls_of(call) > before;
        }
        assert!(start.elapsed() < PATIENCE, "the other thread neither makes {call:?} nor waits");
        thread::yield_now();
    }
    true
}

/// Another thread calls `frees`, which makes the driver call `call`, between the check of a
/// launch's argument and the submission of the launch to the stream.
fn frees_during_a_launch(
    device: Device,
    faults: &Arc<Faults>,
    bytes: DeviceSlice<u8>,
    call: Call,
    frees: impl FnOnce() + Send + 'static,
) {
    let stream = device.stream().unwrap();
    let ((begin, begun), (told, early)) = (channel(), channel());
    let freeing = thread::spawn(move || {
        begun.recv().unwrap();
        frees();
    });
    let (before, theirs) = (faults.calls_of(call), faults.clone());
    faults.before(Call::Launch, move || {
        begin.send(()).unwrap();
        told.send(comes(&device, &theirs, call, before)).unwrap();
    });
    launch(&stream, bytes).unwrap();
    freeing.join().unwrap();
    assert!(!early.recv().unwrap(), "{call:?} before the kernel had begun");
    assert_eq!(faults.calls_of(call), before + 1);
    assert!(launch(&stream, bytes).is_err());
    stream.synchronize().unwrap();
}

#[test]
fn memory_that_is_dropped_during_a_launch_is_freed_behind_the_kernel() {
    let (device, faults) = faulty_device(64 * MIB);
    let memory = device.zeroed_memory(256, 256).unwrap();
    let bytes = memory.slice_at(0, 256).unwrap();
    frees_during_a_launch(device, &faults, bytes, Call::Free, move || drop(memory));
}

/// The block is still allocated when its pool is dropped, as with a leaked handle.
#[test]
fn a_pool_of_the_drivers_that_is_dropped_during_a_launch_frees_its_blocks_behind_the_kernel() {
    let (device, faults) = faulty_device(64 * MIB);
    let pool = DriverPool::builder().build(&device).unwrap();
    let block = pool.allocate(Layout::new::<[u64; 32]>(), &device.stream().unwrap()).unwrap();
    // SAFETY: the slice is exactly the block.
    let bytes = unsafe { DeviceSlice::from_raw_parts(block.0, 256) };
    frees_during_a_launch(device, &faults, bytes, Call::PoolFree, move || drop(pool));
}

/// A failed write may have taken effect, so the memory that the variables name is unknown.
#[test]
fn a_module_is_not_launched_after_a_write_of_its_variables_that_failed() {
    let (device, faults) = faulty_device(64 * MIB);
    let stream = device.stream().unwrap();
    let memory = device.zeroed_memory(256, 256).unwrap();
    let bytes = memory.slice_at(0, 256).unwrap();
    let module = device.native_module().unwrap();
    launch_of(&module, &stream, bytes).unwrap();
    faults.fail_calls(&[Call::Info], true);
    module.write_variables(None, || device.info().map(drop)).unwrap_err();
    let outcome = launch_of(&module, &stream, bytes);
    assert!(matches!(outcome, Err(Error::Dangling(Dangling::UnknownGlobalHeap { .. }))), "{outcome:?}");
    faults.fail_calls(&[Call::Info], false);
    let names = Some((memory.address(), memory.bytes()));
    module.write_variables(names, || device.info().map(drop)).unwrap();
    launch_of(&module, &stream, bytes).unwrap();
    stream.synchronize().unwrap();
}

/// How long a launch that nothing blocks may take to reach the driver, and how long [`lasts`] runs.
const AMPLE: Duration = Duration::from_millis(200);

#[test]
fn a_module_is_not_launched_while_its_variables_are_written() {
    let (device, faults) = faulty_device(64 * MIB);
    let stream = device.stream().unwrap();
    let memory = device.zeroed_memory(256, 256).unwrap();
    let bytes = memory.slice_at(0, 256).unwrap();
    let module = device.native_module().unwrap();
    let mut launching = None;
    let write = || {
        let (module, stream) = (module.clone(), stream.clone());
        launching = Some(thread::spawn(move || launch_of(&module, &stream, bytes).unwrap()));
        thread::sleep(AMPLE);
        assert_eq!(faults.calls_of(Call::Launch), 0, "a launch during the write");
        Ok(())
    };
    module.write_variables(None, write).unwrap();
    launching.unwrap().join().unwrap();
    assert_eq!(faults.calls_of(Call::Launch), 1);
    stream.synchronize().unwrap();
}

/// Set at the end of [`lasts`].
static HAS_ENDED: OnceLock<()> = OnceLock::new();

kernel! {
    unsafe fn lasts() {
        thread::sleep(AMPLE);
        HAS_ENDED.set(()).unwrap();
    }
}

/// The write begins after the check of a launch and before its submission.
#[test]
fn the_variables_of_a_module_are_written_behind_its_kernels() {
    let (device, faults) = faulty_device(64 * MIB);
    let (stream, module) = (device.stream().unwrap(), device.native_module().unwrap());
    let ((begin, begun), theirs) = (channel(), module.clone());
    let writing = thread::spawn(move || {
        begun.recv().unwrap();
        let write = || {
            assert!(HAS_ENDED.get().is_some(), "the kernel still runs");
            Ok(())
        };
        theirs.write_variables(None, write).unwrap();
    });
    let (before, calls, of) = (faults.calls_of(Call::Synchronize), faults.clone(), device.clone());
    faults.before(Call::Launch, move || {
        begin.send(()).unwrap();
        // Its first wait for the device, without the kernel.
        assert!(comes(&of, &calls, Call::Synchronize, before));
        thread::sleep(AMPLE / 4);
    });
    // SAFETY: P1 to P6: a native kernel that accesses no memory of a device.
    unsafe { stream.launch(&module, lasts, &ONE_THREAD, ()) }.unwrap();
    writing.join().unwrap();
}

#[test]
fn a_buffer_that_shrinks_during_a_launch_is_unmapped_behind_the_kernel() {
    let (device, faults) = faulty_device(64 * MIB);
    let mut buffer = GrowableBuffer::reserve(&device, 4 * MIB).unwrap();
    buffer.grow_to(4 * MIB).unwrap();
    // The slice covers the entire reservation, like the handle of a pool.
    let bytes = buffer.slice_at(0, 4 * MIB).unwrap();
    frees_during_a_launch(device, &faults, bytes, Call::Unmap, move || {
        buffer.shrink_to(0).unwrap();
    });
}

/// Another thread launches a kernel on `bytes` during the next driver call `call`, which `change`
/// makes.
fn launches_during(
    faults: &Arc<Faults>,
    call: Call,
    bytes: DeviceSlice<u8>,
    stream: &Stream,
    change: impl FnOnce(),
) {
    let (told, early) = channel();
    let (theirs, stream, device) = (faults.clone(), stream.clone(), stream.device().clone());
    let before = faults.calls_of(Call::Launch);
    faults.before(call, move || {
        let launching = thread::spawn(move || launch(&stream, bytes).unwrap());
        told.send((comes(&device, &theirs, Call::Launch, before), launching)).unwrap();
    });
    change();
    let (is_early, launching) = early.recv().expect("it makes that call");
    assert!(!is_early, "a launch during {call:?}");
    launching.join().unwrap();
    assert_eq!(faults.calls_of(Call::Launch), before + 1);
}

#[test]
fn launches_on_a_pool_wait_while_the_host_changes_or_copies_its_metadata() {
    let (device, faults) = faulty_device(256 * MIB);
    let stream = device.stream().unwrap();
    let mut list = FreeList::builder(64, 64).build(&device).unwrap();
    let bytes = list.memory().slice_at(0, 64).unwrap();
    let during =
        |call, bytes, change: &mut dyn FnMut()| launches_during(&faults, call, bytes, &stream, change);
    during(Call::Write, bytes, &mut || list.reset().unwrap());
    during(Call::Read, bytes, &mut || assert_eq!(list.stats().unwrap().blocks, 64));
    during(Call::Read, bytes, &mut || assert!(list.check().unwrap().is_empty()));
    let mut arena = Bump::builder(4096).build(&device).unwrap();
    let bytes = arena.memory().slice_at(0, 64).unwrap();
    during(Call::Write, bytes, &mut || arena.reset().unwrap());
    during(Call::Read, bytes, &mut || assert_eq!(arena.stats().unwrap().remaining_bytes, 4096));
    during(Call::Read, bytes, &mut || assert!(arena.check().unwrap().is_empty()));
    let mut heap = Heap::builder(8 * MIB).initial(2 * MIB).build(&device).unwrap();
    let bytes = heap.memory().slice_at(0, 64).unwrap();
    during(Call::StreamFill, bytes, &mut || heap.reset().unwrap());
    during(Call::Read, bytes, &mut || assert!(heap.check().unwrap().is_empty()));
    during(Call::Map, bytes, &mut || assert_eq!(heap.grow_to(4 * MIB).unwrap(), 4 * MIB));
}
