//! A CUDA context, its limits, and making it current for the duration of a call.

use super::panics::Panics;
use super::stack::{CHANGES, StackLimit, wanted_limit};
use super::sys::{Api, CONTEXT_IS_DESTROYED, DEINITIALIZED, Handle, Status};
use crate::driver::backend::{KernelAttributes, Limits, PoolOrigin};
use crate::driver::ptx::Stack;
use crate::error::{Error, NotSupported, Result};
use crate::lock::lock;
use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute as Attribute, CUlimit};
use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ptr::null_mut;

pub(super) struct Context {
    pub api: &'static Api,
    pub device: CUdevice,
    raw: Handle<CUcontext>,
    /// Whether this is the device's primary context, on which this value holds one reference.
    primary: bool,
    /// Panics of its kernels. `None` if there is no memory for them.
    panics: Option<Panics>,
    stack: StackLimit,
}

impl Context {
    /// The primary context of `device`.
    pub fn primary(api: &'static Api, device: CUdevice) -> Result<Context> {
        let mut raw = null_mut();
        // SAFETY: the driver writes the handle to `raw`.
        let status = unsafe { (api.primary_ctx_retain)(&mut raw, device) };
        api.check("cuDevicePrimaryCtxRetain", status)?;
        Context::new(api, device, raw, true).with_panics()
    }

    /// A context that the caller owns.
    ///
    /// # Safety
    /// It is live and outlives this value.
    pub unsafe fn foreign(api: &'static Api, raw: CUcontext) -> Result<Context> {
        let mut context = Context::new(api, 0, raw, false);
        let mut device = 0;
        let current = context.enter()?;
        // SAFETY: the driver writes the device to `device`.
        let status = unsafe { (api.ctx_get_device)(&mut device) };
        api.check("cuCtxGetDevice", status)?;
        drop(current);
        context.device = device;
        context.with_panics()
    }

    fn new(api: &'static Api, device: CUdevice, raw: CUcontext, primary: bool) -> Context {
        Context { api, device, raw: Handle(raw), primary, panics: None, stack: StackLimit::default() }
    }

    /// The context, with a record of panics.
    fn with_panics(mut self) -> Result<Context> {
        let current = self.enter()?;
        let panics = Panics::new(self.api);
        drop(current);
        self.panics = panics;
        Ok(self)
    }

    /// Panics of kernels, if there is memory for them.
    pub fn panics(&self) -> Option<&Panics> {
        self.panics.as_ref()
    }

    /// Whether this is the device's primary context.
    pub fn is_primary(&self) -> bool {
        self.primary
    }

    /// Names the panic that made a call fail, if one did, or a stack that may be too small.
    pub fn explain<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|error| match &self.panics {
            Some(panics) => self.stack.explain(panics.explain(error)),
            None => self.stack.explain(error),
        })
    }

    pub fn raw(&self) -> CUcontext {
        self.raw.0
    }

    /// Makes the context current until the guard is dropped, which restores the previous one.
    pub fn enter(&self) -> Result<Current> {
        let api = self.api;
        let mut current = null_mut();
        // SAFETY: the driver writes the handle to `current`.
        let status = unsafe { (api.ctx_get_current)(&mut current) };
        api.check("cuCtxGetCurrent", status)?;
        if current == self.raw.0 {
            return Ok(Current { pushed: None, _thread: PhantomData });
        }
        // SAFETY: the context is live.
        let status = unsafe { (api.ctx_push_current)(self.raw.0) };
        api.check("cuCtxPushCurrent", status)?;
        Ok(Current { pushed: Some(api), _thread: PhantomData })
    }

    /// Calls the driver with the context current.
    pub fn call(&self, name: &'static str, call: impl FnOnce(&Api) -> Status) -> Result<()> {
        let _current = self.enter()?;
        self.explain(self.api.check(name, call(self.api)))
    }

    /// Calls the driver to release a resource in `Drop`: a failure is logged.
    pub fn release(&self, name: &'static str, call: impl FnOnce(&Api) -> Status) {
        match self.call(name, call) {
            // At process exit the driver may shut down before our last handles are dropped.
            Ok(()) | Err(Error::Driver { code: DEINITIALIZED | CONTEXT_IS_DESTROYED, .. }) => {}
            Err(error) => tracing::warn!(%error, "a driver handle could not be destroyed"),
        }
    }

    /// Sets a limit of the context unless it has that value, and returns the value that the driver
    /// reports.
    pub fn set_limit(&self, limit: CUlimit, bytes: u64) -> Result<u64> {
        let current = self.limit(limit)?;
        if current == bytes {
            return Ok(current);
        }
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: takes no pointer.
        self.call("cuCtxSetLimit", |api| unsafe { (api.ctx_set_limit)(limit, bytes) })?;
        self.limit(limit)
    }

    pub fn limit(&self, limit: CUlimit) -> Result<u64> {
        let mut bytes = 0;
        // SAFETY: the driver writes the value to `bytes`.
        self.call("cuCtxGetLimit", |api| unsafe { (api.ctx_get_limit)(&mut bytes, limit) })?;
        Ok(bytes as u64)
    }

    /// Sets the stack limit for the program.
    pub fn set_stack_bytes(&self, bytes: u64) -> Result<u64> {
        let _changes = lock(&CHANGES);
        let set = self.set_limit(CUlimit::CU_LIMIT_STACK_SIZE, bytes)?;
        self.stack.note_set();
        Ok(set)
    }

    /// Raises the stack limit for the kernels of a module, where this is allowed.
    pub fn raise_stack_limit(&self, kernels: impl Iterator<Item = Stack>) {
        let Some(wanted) = wanted_limit(kernels) else { return };
        let _changes = lock(&CHANGES);
        if !self.is_primary() || self.stack.is_set() {
            return;
        }
        let raised = self.limit(CUlimit::CU_LIMIT_STACK_SIZE).and_then(|current| {
            let wanted = wanted.max(current);
            self.set_limit(CUlimit::CU_LIMIT_STACK_SIZE, wanted)
        });
        match raised {
            Ok(bytes) => tracing::info!(bytes, "threads of kernels have a stack of this size"),
            Err(error) => {
                tracing::warn!(%error, wanted, "the stack of the kernels' threads cannot be raised")
            }
        }
    }

    /// Fails if the threads of `kernel` cannot have the stack that they need at least.
    pub fn check_stack(&self, kernel: &'static str, attributes: KernelAttributes) -> Result<()> {
        if !attributes.has_open_stack {
            return Ok(());
        }
        self.stack.check(kernel, attributes, self.limit(CUlimit::CU_LIMIT_STACK_SIZE)?)
    }

    /// Waits for all work of the context.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: takes no pointer.
        self.call("cuCtxSynchronize", |api| unsafe { (api.ctx_synchronize)() })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Fails at process exit, if the driver has shut down before.
        if let (Some(panics), Ok(_current)) = (&self.panics, self.enter()) {
            // SAFETY: the modules hold the context, so all of them are unloaded. Each waited for
            // its kernels, unless the context had failed and no kernel runs any more.
            unsafe { panics.free(self.api) };
        }
        if !self.primary {
            return;
        }
        // SAFETY: the reference that `primary` retained, released once.
        let status = unsafe { (self.api.primary_ctx_release)(self.device) };
        if let Err(error) = self.api.check("cuDevicePrimaryCtxRelease", status)
            && status != DEINITIALIZED
        {
            tracing::warn!(%error, "the primary context could not be released");
        }
    }
}

/// While it lives, the context is current.
#[must_use]
pub(super) struct Current {
    pushed: Option<&'static Api>,
    /// The current context is per thread; a raw pointer makes the guard `!Send`.
    _thread: PhantomData<*const ()>,
}

impl Drop for Current {
    fn drop(&mut self) {
        let Some(api) = self.pushed else { return };
        let mut popped = null_mut();
        // SAFETY: the driver writes the handle to `popped`; `enter` pushed a context on this
        // thread.
        let status = unsafe { (api.ctx_pop_current)(&mut popped) };
        if let Err(error) = api.check("cuCtxPopCurrent", status) {
            tracing::warn!(%error, "the previous context could not be made current again");
        }
    }
}

// Attributes of a GPU and its driver, and what they support.

pub(super) fn name_of(context: &Context) -> Result<String> {
    let mut name = [0_u8; 256];
    // SAFETY: the driver writes a terminated string of at most this length to `name`.
    let status = unsafe {
        (context.api.device_get_name)(name.as_mut_ptr().cast(), name.len() as c_int, context.device)
    };
    context.api.check("cuDeviceGetName", status)?;
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

pub(super) fn attribute(context: &Context, attribute: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the driver writes the value to `value`.
    let status = unsafe { (context.api.device_get_attribute)(&mut value, attribute, context.device) };
    context.api.check("cuDeviceGetAttribute", status)?;
    Ok(value.try_into().unwrap_or(0))
}

pub(super) fn limits_of(context: &Context) -> Result<Limits> {
    let ask = |which| attribute(context, which);
    Ok(Limits {
        threads_per_block: ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        block: [
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
        ],
        grid: [
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
            ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
        ],
        shared_bytes_per_block: ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
    })
}

pub(super) fn has_virtual_memory(context: &Context) -> Result<bool> {
    Ok(attribute(context, Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? != 0)
}

/// Fails unless the GPU supports pools, and pools with a maximum size if one is requested.
pub(super) fn check_pools(context: &Context, origin: PoolOrigin) -> Result<()> {
    let unsupported = |what, backend, advice| Err(NotSupported::Backend { what, backend, advice }.into());
    let version = driver_version(context.api)?;
    if version < (11, 2) {
        let advice = "update it to one of CUDA 11.2 or later, or allocate from SyncDriverAllocator";
        return unsupported("stream-ordered pools", "this driver", advice);
    }
    if attribute(context, Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
        return unsupported(
            "stream-ordered pools",
            "this GPU",
            "allocate from SyncDriverAllocator, or from a pool over it",
        );
    }
    if matches!(origin, PoolOrigin::New { max: Some(_) }) && version < (12, 2) {
        let advice = "update it to one of CUDA 12.2 or later, or wrap the pool in a Limit";
        return unsupported("largest size of a pool", "this driver", advice);
    }
    Ok(())
}

/// Major and minor version. The driver encodes them as 1000 × major + 10 × minor.
pub(super) fn driver_version(api: &Api) -> Result<(u32, u32)> {
    let mut version = 0;
    // SAFETY: the driver writes the version to `version`.
    let status = unsafe { (api.driver_get_version)(&mut version) };
    api.check("cuDriverGetVersion", status)?;
    let version = u32::try_from(version).unwrap_or(0);
    Ok((version / 1000, version % 1000 / 10))
}
