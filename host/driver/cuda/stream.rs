//! Streams and events of a GPU.

use super::context::Context;
use super::sys::{Api, Handle, NOT_READY, SUCCESS, Status};
use crate::driver::backend::{EventBackend, Launch, StreamBackend, Transfer, Transfers, own_event};
use crate::error::{InvalidRequest, Result};
use cudarc::driver::sys::{
    CUevent, CUevent_flags, CUfunction, CUfunction_attribute, CUstream, CUstream_flags,
};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

/// Dynamic shared memory beyond this needs an opt-in per kernel.
const SHARED_BYTES_UNASKED: u32 = 48 << 10;

pub(super) struct CudaStream {
    context: Arc<Context>,
    raw: Handle<CUstream>,
    /// Whether dropping this destroys it.
    owned: bool,
}

impl CudaStream {
    /// A stream that is not ordered with any other, not even the legacy default stream.
    pub fn create(context: Arc<Context>) -> Result<CudaStream> {
        let mut raw = null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the driver writes the handle to `raw`.
        context.call("cuStreamCreate", |api| unsafe { (api.stream_create)(&mut raw, flags) })?;
        Ok(CudaStream { context, raw: Handle(raw), owned: true })
    }

    /// A stream that the caller owns.
    ///
    /// # Safety
    /// It is a live stream of the context and outlives this value.
    pub unsafe fn foreign(context: Arc<Context>, raw: *mut c_void) -> CudaStream {
        CudaStream { context, raw: Handle(raw.cast()), owned: false }
    }

    /// Whether the stream belongs to its context. The default stream belongs to every context.
    pub fn is_of_context(&self) -> Result<bool> {
        let mut owner = null_mut();
        // SAFETY: the driver writes the context of the stream, which is live, to `owner`.
        self.call("cuStreamGetCtx", |api, stream| unsafe { (api.stream_get_ctx)(stream, &mut owner) })?;
        Ok(owner == self.context.raw())
    }

    /// Calls the driver on this stream.
    fn call(&self, name: &'static str, call: impl FnOnce(&Api, CUstream) -> Status) -> Result<()> {
        self.context.call(name, |api| call(api, self.raw.0))
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: created by `create`, destroyed once; the driver still completes its work.
            self.context.release("cuStreamDestroy", |api| unsafe { (api.stream_destroy)(self.raw.0) });
        }
    }
}

impl Transfers for CudaStream {
    unsafe fn transfer(&self, transfer: Transfer) -> Result<()> {
        match transfer {
            Transfer::Write { to, from, bytes } => self.call("cuMemcpyHtoDAsync", |api, stream| {
                // SAFETY: the caller's promise: both ranges are valid until the copy ends.
                unsafe { (api.memcpy_htod_async)(to, from.cast(), bytes, stream) }
            }),
            Transfer::Read { to, from, bytes } => self.call("cuMemcpyDtoHAsync", |api, stream| {
                // SAFETY: the caller's promise: both ranges are valid until the copy ends.
                unsafe { (api.memcpy_dtoh_async)(to.cast(), from, bytes, stream) }
            }),
            Transfer::Copy { to, from, bytes } => self.call("cuMemcpyDtoDAsync", |api, stream| {
                // SAFETY: the caller's promise: both ranges are valid until the copy ends.
                unsafe { (api.memcpy_dtod_async)(to, from, bytes, stream) }
            }),
            Transfer::Fill { range, byte } => self.call("cuMemsetD8Async", |api, stream| {
                // SAFETY: the caller's promise: the range is valid until the fill ends.
                unsafe { (api.memset_d8_async)(range.address, byte, range.bytes as usize, stream) }
            }),
        }
    }
}

impl StreamBackend for CudaStream {
    unsafe fn launch(&self, launch: Launch<'_>) -> Result<()> {
        let function: CUfunction = launch.function.raw.cast();
        if launch.shared_bytes > SHARED_BYTES_UNASKED {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = launch.shared_bytes as c_int;
            self.call("cuFuncSetAttribute", |api, _| {
                // SAFETY: a function of a live module.
                unsafe { (api.func_set_attribute)(function, attribute, bytes) }
            })?;
        }
        self.context.check_stack(launch.kernel, launch.function.attributes)?;
        if let Some(panics) = self.context.panics() {
            panics.launches(launch.function, launch.kernel);
        }
        let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
        let (shared, arguments) = (launch.shared_bytes, launch.arguments.as_mut_ptr());
        self.call("cuLaunchKernel", |api, stream| {
            // SAFETY: the arguments match the function's declaration, and the driver copies them
            // before it returns; the caller promises the rest (P1 to P6 of `Stream::launch`).
            unsafe {
                (api.launch_kernel)(function, gx, gy, gz, bx, by, bz, shared, stream, arguments, null_mut())
            }
        })
    }

    fn record(&self) -> Result<Arc<dyn EventBackend>> {
        let event = CudaEvent::create(self.context.clone())?;
        // SAFETY: both are live handles of this context.
        self.call("cuEventRecord", |api, stream| unsafe { (api.event_record)(event.raw.0, stream) })?;
        Ok(Arc::new(event))
    }

    fn wait(&self, event: Arc<dyn EventBackend>) -> Result<()> {
        let event = own_event::<CudaEvent>(&*event).raw.0;
        // SAFETY: both are live handles; the driver copies what it needs from the event.
        self.call("cuStreamWaitEvent", |api, stream| unsafe { (api.stream_wait_event)(stream, event, 0) })
    }

    fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream outlives `self`.
        self.call("cuStreamSynchronize", |api, stream| unsafe { (api.stream_synchronize)(stream) })
    }

    fn is_done(&self) -> Result<bool> {
        // SAFETY: the stream outlives `self`.
        query(&self.context, "cuStreamQuery", |api| unsafe { (api.stream_query)(self.raw.0) })
    }

    /// A failure sticks to the CUDA context, so this query does not consume it.
    fn is_idle(&self) -> bool {
        matches!(self.is_done(), Ok(true))
    }

    fn raw(&self) -> *mut c_void {
        self.raw.0.cast()
    }
}

/// A query that the driver answers with "done" or "not ready".
fn query(context: &Context, name: &'static str, ask: impl FnOnce(&Api) -> Status) -> Result<bool> {
    let _current = context.enter()?;
    match ask(context.api) {
        SUCCESS => Ok(true),
        NOT_READY => Ok(false),
        status => context.explain(context.api.check(name, status)).map(|()| true),
    }
}

struct CudaEvent {
    context: Arc<Context>,
    raw: Handle<CUevent>,
}

impl CudaEvent {
    fn create(context: Arc<Context>) -> Result<CudaEvent> {
        let mut raw = null_mut();
        let flags = CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: the driver writes the handle to `raw`.
        context.call("cuEventCreate", |api| unsafe { (api.event_create)(&mut raw, flags) })?;
        Ok(CudaEvent { context, raw: Handle(raw) })
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // SAFETY: created by `create`, destroyed once.
        self.context.release("cuEventDestroy", |api| unsafe { (api.event_destroy)(self.raw.0) });
    }
}

impl EventBackend for CudaEvent {
    fn is_done(&self) -> Result<bool> {
        // SAFETY: the event is destroyed only when `self` is dropped.
        query(&self.context, "cuEventQuery", |api| unsafe { (api.event_query)(self.raw.0) })
    }

    fn synchronize(&self) -> Result<()> {
        // SAFETY: the event is destroyed only when `self` is dropped.
        self.context.call("cuEventSynchronize", |api| unsafe { (api.event_synchronize)(self.raw.0) })
    }

    fn elapsed(&self, earlier: &dyn EventBackend) -> Result<Duration> {
        let earlier = own_event::<CudaEvent>(earlier).raw.0;
        let mut millis = 0.0;
        self.context.call("cuEventElapsedTime", |api| {
            // SAFETY: both are live events; the driver writes the time to `millis`.
            unsafe { (api.event_elapsed_time)(&mut millis, earlier, self.raw.0) }
        })?;
        Duration::try_from_secs_f64(f64::from(millis) / 1e3).map_err(|_| InvalidRequest::EventOrder.into())
    }
}
