//! The allocator of PyTorch: three C functions, and the pools of the GPUs.
//!
//! PyTorch passes what `warpheap_torch_alloc` returns to kernels, null too, so a failed allocation
//! must raise. The function throws a C++ `std::runtime_error`, which PyTorch raises in Python.

use crate::convert::{Failure, Result, layout};
use crate::device::Device;
use crate::host_pools::{CachingPool, Open};
use libloading::Library;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, OnceLock};
use warpheap::host_pools;
use warpheap_bindings::lock::lock;
use warpheap_device::kernel::DevicePtr;

type Pool = Open<host_pools::CachingPool>;

/// The largest number of GPUs that PyTorch supports.
const GPUS: usize = 64;

/// The pool of each GPU that PyTorch has used, by ordinal. Each is set once, under `MAKING`.
static POOLS: [OnceLock<Pool>; GPUS] = [const { OnceLock::new() }; GPUS];
static MAKING: Mutex<()> = Mutex::new(());

/// PyTorch's own alignment.
const ALIGN: u64 = 512;

/// Allocates for PyTorch. The pool of the GPU is made by the first call.
///
/// # Safety
/// `stream` is a live stream of the GPU. A failure is thrown as a C++ exception.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpheap_torch_alloc(
    size: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    if size == 0 {
        return null_mut();
    }
    let call = || {
        let pool = pool_of(ordinal(device)?)?;
        let bytes = u64::try_from(size)
            .map_err(|_| Failure::invalid_request(format!("{size} B were requested of warpheap")))?;
        Ok(pool.backing().allocate(bytes, ALIGN, stream as u64)?.0 as *mut c_void)
    };
    match caught(call) {
        Ok(block) => block,
        Err(failure) => {
            throw(failure);
            null_mut()
        }
    }
}

/// Frees for PyTorch. PyTorch calls it from destructors, so a failure is printed. Does nothing in a
/// forked child, which has none of the memory.
///
/// # Safety
/// `ptr` is null, or was allocated by [`warpheap_torch_alloc`] with these arguments; only work on
/// `stream` and on recorded streams uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpheap_torch_free(
    ptr: *mut c_void,
    size: isize,
    device: c_int,
    stream: *mut c_void,
) {
    if ptr.is_null() || Failure::check_process().is_err() {
        return;
    }
    let call = || {
        let pool = pool_of(ordinal(device)?)?;
        let layout = layout(u64::try_from(size).unwrap_or(0), ALIGN)?;
        // SAFETY: the caller's promise.
        unsafe { pool.backing().deallocate(ptr as u64, layout, stream as u64) }
    };
    if let Err(failure) = caught(call) {
        eprintln!("warpheap: a free by PyTorch failed: {}", failure.text());
    }
}

/// Records that work on `stream` uses a block, too: `Tensor.record_stream`. Ignores memory that no
/// pool has allocated, which tensors may refer to as well.
///
/// # Safety
/// `stream` is a stream of the block's GPU that exists until the block is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpheap_torch_record_stream(ptr: *mut c_void, stream: *mut c_void) {
    let call = || {
        let block = DevicePtr(ptr.cast::<u8>());
        let mut pools = POOLS.iter().filter_map(OnceLock::get);
        let owner = pools.find(|pool| pool.pool().layout_of(block).is_some());
        owner.map_or(Ok(()), |pool| pool.backing().record_stream(ptr as u64, stream as u64))
    };
    if let Err(failure) = caught(call) {
        throw(failure);
    }
}

/// The pool that PyTorch allocates from on a GPU.
#[pyfunction]
pub fn torch_pool(py: Python<'_>, ordinal: u32) -> PyResult<CachingPool> {
    let (device, pool) = py.detach(|| {
        let device = warpheap::Device::cuda(ordinal).map_err(Failure::from)?;
        Ok::<_, Failure>((device, pool_of(ordinal)?.clone()))
    })?;
    Ok(CachingPool::of(Device { inner: device, ordinal: Some(ordinal) }, pool))
}

/// Fails if `torch_use_pools` would fail with these pools, and changes nothing.
#[pyfunction]
pub fn torch_check_pools(py: Python<'_>, pools: Vec<Py<CachingPool>>) -> PyResult<()> {
    let chosen = chosen(py, &pools)?;
    Ok(py.detach(|| check(&chosen).map(drop))?)
}

/// Makes PyTorch allocate from each pool on the pool's GPU. Fails without a change if PyTorch has a
/// pool on one of these GPUs.
#[pyfunction]
pub fn torch_use_pools(py: Python<'_>, pools: Vec<Py<CachingPool>>) -> PyResult<()> {
    let chosen = chosen(py, &pools)?;
    let insert = || {
        let _making = check(&chosen)?;
        for (ordinal, open) in chosen {
            place_of(ordinal)?.get_or_init(|| open);
        }
        Ok::<_, Failure>(())
    };
    Ok(py.detach(insert)?)
}

/// The pools with the ordinals of their GPUs.
fn chosen(py: Python<'_>, pools: &[Py<CachingPool>]) -> PyResult<Vec<(u32, Pool)>> {
    let of = |pool: &Py<CachingPool>| {
        let pool = pool.get();
        let Some(ordinal) = pool.device().ordinal else {
            let text = "PyTorch cannot allocate from a pool on the CPU; create the pool on `Device.cuda()`";
            return Err(Failure::not_supported(text.into()).into());
        };
        Ok((ordinal, pool.open(py)?))
    };
    pools.iter().map(of).collect()
}

/// Checks that each GPU is named once and has no pool, which stays so while the lock is held.
fn check(chosen: &[(u32, Pool)]) -> Result<MutexGuard<'static, ()>> {
    Failure::check_process()?;
    let making = lock(&MAKING);
    for (i, (ordinal, _)) in chosen.iter().enumerate() {
        if chosen[..i].iter().any(|(earlier, _)| earlier == ordinal) {
            let text = format!("two pools on GPU {ordinal} were passed; pass one for each GPU");
            return Err(Failure::invalid_request(text));
        }
        if place_of(*ordinal)?.get().is_some() {
            let text = format!("PyTorch already has a pool on GPU {ordinal}; choose it once, at the start");
            return Err(Failure::invalid_request(text));
        }
    }
    Ok(making)
}

fn ordinal(device: c_int) -> Result<u32> {
    u32::try_from(device).map_err(|_| Failure::invalid_request(format!("there is no GPU {device}")))
}

fn place_of(ordinal: u32) -> Result<&'static OnceLock<Pool>> {
    let place = POOLS.get(ordinal as usize);
    place.ok_or_else(|| {
        Failure::invalid_request(format!("GPU {ordinal} was requested, but PyTorch has at most {GPUS}"))
    })
}

fn pool_of(ordinal: u32) -> Result<&'static Pool> {
    let place = place_of(ordinal)?;
    if let Some(pool) = place.get() {
        return Ok(pool);
    }
    let _making = lock(&MAKING);
    if let Some(pool) = place.get() {
        return Ok(pool);
    }
    let device = warpheap::Device::cuda(ordinal)?;
    let pool = host_pools::CachingPool::builder().name(format!("PyTorch, GPU {ordinal}")).build(&device)?;
    let open = Open::new(pool, None)?;
    Ok(place.get_or_init(|| open))
}

/// Turns a panic into a failure: none may reach PyTorch. Fails in a forked child.
fn caught<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    Failure::check_process()?;
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        Err(Failure::invalid_request("warpheap panicked; its message is on the standard error".into()))
    })
}

/// `std::__throw_runtime_error`, which copies the text.
type Throw = unsafe extern "C-unwind" fn(*const c_char);

/// Finds the function in the C++ runtime, which PyTorch has loaded.
fn cpp_throw() -> Option<Throw> {
    static FOUND: OnceLock<Option<Throw>> = OnceLock::new();
    let find = || {
        // SAFETY: the initialisers of the C++ runtime have no preconditions.
        let library = unsafe { Library::new("libstdc++.so.6") }.ok()?;
        // Never unloaded: the function stays valid.
        let library = ManuallyDrop::new(library);
        // SAFETY: the symbol is the function that libstdc++ declares with this signature.
        unsafe { library.get::<Throw>(c"_ZSt21__throw_runtime_errorPKc".to_bytes_with_nul()) }
            .ok()
            .map(|throw| *throw)
    };
    *FOUND.get_or_init(find)
}

/// Throws a C++ `std::runtime_error`. Returns if there is no C++ runtime; then it is printed.
fn throw(failure: Failure) {
    thread_local! {
        /// Outlives the frames that the exception unwinds.
        static TEXT: RefCell<CString> = RefCell::default();
    }
    let text = CString::new(failure.text().replace('\0', " ")).unwrap_or_default();
    drop(failure);
    let text = TEXT.with(|slot| {
        slot.replace(text);
        slot.borrow().as_ptr()
    });
    match cpp_throw() {
        // SAFETY: libstdc++ copies the text, which lives in `TEXT`. No frame of this crate that the
        // exception unwinds has a value to drop.
        Some(throw) => unsafe { throw(text) },
        None => eprintln!("warpheap: an allocation by PyTorch failed, and there is no C++ runtime to throw"),
    }
}
