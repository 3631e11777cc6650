//! PTX linking by the driver: compiles each function once, instead of once per kernel that can
//! reach it.
//!
//! Linked functions follow the calling convention, so the values that a kernel holds in registers
//! stay there across a call. Without linking, a kernel spills such values to its stack before the
//! first call that it may make.

use super::sys::{INVALID_VALUE, LinkApi, SUCCESS, Status};
use crate::driver::ptx::{link_inputs, register_limit};
use crate::error::Result;
use cudarc::driver::sys::{CUjit_option, CUjitInputType, CUlinkState};
use std::ffi::{CString, c_void};
use std::ptr::{null_mut, without_provenance_mut};

/// The optimisation level of modules with recursion. From level 2 on, the driver's compiler makes
/// wrong code of some recursive functions (`docs/miscompiled.md`).
const RECURSION_LEVEL: u32 = 1;

/// The linked image of a PTX text, which [`link_inputs`] divides if it has recursive functions. The
/// image lives as long as this value.
pub(super) struct Linked {
    api: &'static LinkApi,
    state: CUlinkState,
    image: *mut c_void,
}

impl Linked {
    /// Compiles and links `ptx`. If all kernels have a register limit, each function gets the
    /// largest. The context must be current. `None` if the driver cannot link the text. It may
    /// still load the text unlinked, or report why not.
    pub fn new(ptx: &str) -> Option<Linked> {
        let api = LinkApi::loaded().ok()?;
        let Some(inputs) = link_inputs(ptx) else {
            tracing::warn!(
                "the kernels have an alias, or a recursive function with an unsupported signature, and are not linked: loading takes longer"
            );
            return None;
        };
        let mut state = null_mut();
        // SAFETY: no options; the driver writes the state to `state`.
        let status = unsafe { (api.link_create)(0, null_mut(), null_mut(), &mut state) };
        if status != SUCCESS {
            return None;
        }
        let mut linked = Linked { api, state, image: null_mut() };
        let registers = register_limit(ptx).map(|count| (CUjit_option::CU_JIT_MAX_REGISTERS, count));
        // The text was divided: it has recursion.
        let level = (inputs.len() > 1).then_some((CUjit_option::CU_JIT_OPTIMIZATION_LEVEL, RECURSION_LEVEL));
        let options: Vec<_> = registers.into_iter().chain(level).collect();
        let added = inputs.iter().try_for_each(|input| linked.add(input, &options));
        let done = added.and_then(|()| linked.complete());
        if let Err(status) = done {
            tracing::debug!(status, "the driver does not link the kernels; loading them unlinked");
        }
        done.ok().map(|()| linked)
    }

    /// The image to load.
    pub fn image(&self) -> *const c_void {
        self.image
    }

    fn add(&mut self, text: &str, options: &[(CUjit_option, u32)]) -> Result<(), Status> {
        let text = CString::new(text).map_err(|_| INVALID_VALUE)?;
        let count = options.len() as u32;
        let mut values: Vec<_> =
            options.iter().map(|(_, value)| without_provenance_mut(*value as usize)).collect();
        let mut options: Vec<_> = options.iter().map(|(option, _)| *option).collect();
        let bytes = text.to_bytes_with_nul();
        let (data, len) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
        // SAFETY: the text ends with a zero and the driver only reads it; there are as many values
        // as options.
        let status = unsafe {
            (self.api.link_add_data)(
                self.state,
                CUjitInputType::CU_JIT_INPUT_PTX,
                data,
                len,
                c"kernels".as_ptr(),
                count,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if status == SUCCESS { Ok(()) } else { Err(status) }
    }

    fn complete(&mut self) -> Result<(), Status> {
        let mut bytes = 0;
        // SAFETY: the driver writes address and length of the image, which lives as long as the
        // state.
        let status = unsafe { (self.api.link_complete)(self.state, &mut self.image, &mut bytes) };
        if status == SUCCESS { Ok(()) } else { Err(status) }
    }
}

impl Drop for Linked {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once. A failure only leaks memory of the driver.
        let status = unsafe { (self.api.link_destroy)(self.state) };
        if status != SUCCESS {
            tracing::warn!(status, "cuLinkDestroy failed");
        }
    }
}
