//! A CUDA context, and making it the calling thread's for the length of a call.

use super::sys::{Api, CONTEXT_IS_DESTROYED, DEINITIALIZED, Status};
use crate::error::{Error, Result};
use cudarc::driver::sys::{CUcontext, CUdevice};
use std::marker::PhantomData;
use std::ptr::null_mut;

pub(super) struct Context {
    pub api: &'static Api,
    pub device: CUdevice,
    raw: CUcontext,
    /// Whether it is the device's primary context, of which this holds one reference.
    primary: bool,
}

// SAFETY: the driver lets any thread use a context.
unsafe impl Send for Context {}
// SAFETY: the driver locks by itself.
unsafe impl Sync for Context {}

impl Context {
    /// The primary context of `device`.
    pub fn primary(api: &'static Api, device: CUdevice) -> Result<Context> {
        let mut raw = null_mut();
        // SAFETY: the driver writes the handle there.
        let status = unsafe { (api.primary_ctx_retain)(&mut raw, device) };
        api.check("cuDevicePrimaryCtxRetain", status)?;
        Ok(Context { api, device, raw, primary: true })
    }

    /// A context of someone else's.
    ///
    /// # Safety
    /// It is live and outlives this value.
    pub unsafe fn foreign(api: &'static Api, raw: CUcontext) -> Result<Context> {
        let mut context = Context { api, device: 0, raw, primary: false };
        let mut device = 0;
        let current = context.enter()?;
        // SAFETY: the driver writes the device there.
        let status = unsafe { (api.ctx_get_device)(&mut device) };
        api.check("cuCtxGetDevice", status)?;
        drop(current);
        context.device = device;
        Ok(context)
    }

    pub fn raw(&self) -> CUcontext {
        self.raw
    }

    /// Makes the context current until the guard goes; then the one from before is again.
    pub fn enter(&self) -> Result<Current> {
        let api = self.api;
        let mut current = null_mut();
        // SAFETY: the driver writes the handle there.
        let status = unsafe { (api.ctx_get_current)(&mut current) };
        api.check("cuCtxGetCurrent", status)?;
        if current == self.raw {
            return Ok(Current { pushed: None, _thread: PhantomData });
        }
        // SAFETY: the context is live.
        let status = unsafe { (api.ctx_push_current)(self.raw) };
        api.check("cuCtxPushCurrent", status)?;
        Ok(Current { pushed: Some(api), _thread: PhantomData })
    }

    /// Calls the driver with the context current.
    pub fn call(&self, name: &'static str, call: impl FnOnce(&Api) -> Status) -> Result<()> {
        let _current = self.enter()?;
        self.api.check(name, call(self.api))
    }

    /// The same for what a `Drop` gives back: a failure is logged.
    pub fn release(&self, name: &'static str, call: impl FnOnce(&Api) -> Status) {
        match self.call(name, call) {
            // At the end of the process the driver may go before our last handles do.
            Ok(()) | Err(Error::Driver { code: DEINITIALIZED | CONTEXT_IS_DESTROYED, .. }) => {}
            Err(error) => tracing::warn!(%error, "a handle of the driver's could not be given back"),
        }
    }

    /// Waits for all work of the context.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: takes no pointer.
        self.call("cuCtxSynchronize", |api| unsafe { (api.ctx_synchronize)() })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.primary {
            return;
        }
        // SAFETY: the reference that `primary` took, given back once.
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
    /// What is current is so on one thread; a pointer keeps the guard there.
    _thread: PhantomData<*const ()>,
}

impl Drop for Current {
    fn drop(&mut self) {
        let Some(api) = self.pushed else { return };
        let mut popped = null_mut();
        // SAFETY: the driver writes the handle there; `enter` pushed one on this same thread.
        let status = unsafe { (api.ctx_pop_current)(&mut popped) };
        if let Err(error) = api.check("cuCtxPopCurrent", status) {
            tracing::warn!(%error, "the context from before could not be made current again");
        }
    }
}
