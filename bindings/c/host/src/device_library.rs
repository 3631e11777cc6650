//! The device library: PTX that defines `wh_malloc` and the other functions for kernels.

use crate::arguments::Out;
use crate::call::call;
use crate::failure::Failure;
use crate::status::wh_status::{self, WH_NOT_SUPPORTED};
use host::KernelImage;
use host::driver::check_process;
use std::ffi::{CString, c_char};
use std::ptr::null;
use std::sync::LazyLock;
use warpheap_c_device::libraries;

/// The images with their text, which ends with a byte of zero, as the driver's linker expects.
static TEXTS: LazyLock<Result<Vec<CString>, &str>> = LazyLock::new(|| {
    let text = |image: &KernelImage| CString::new(image.ptx).map_err(|_| "the PTX contains a zero byte");
    libraries()?.iter().map(text).collect()
});

/// Returns the device library for a GPU of compute capability `major.minor`: relocatable PTX, to be
/// linked with the program's kernels by `nvcc`, nvJitLink or `cuLinkAddData`. The text ends with a
/// byte of zero, is static, and must not be freed. `bytes` gets its length without that byte; it
/// may be null.
///
/// # Safety
/// `ptx` and `bytes` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wh_device_library(
    major: i32,
    minor: i32,
    ptx: *mut *const c_char,
    bytes: *mut usize,
) -> wh_status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(ptx, "ptx", null()) }?;
        // SAFETY: the caller's promise.
        let length = unsafe { Out::optional(bytes, "bytes", 0) }?;
        // Another thread may have been writing `TEXTS` at the fork.
        check_process()?;
        let unsupported = |text: String| Failure::new(WH_NOT_SUPPORTED, text);
        let missing =
            |why: &str| unsupported(format!("libwarpheap was built without its device library: {why}"));
        let images = libraries().map_err(missing)?;
        let texts = TEXTS.as_ref().map_err(|why| missing(why))?;
        let capability = (u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0));
        let fits = images.iter().rposition(|image| capability >= image.capability);
        let index = fits.ok_or_else(|| {
            unsupported(format!(
                "compute capability {major}.{minor} is too old: the device library needs 7.0"
            ))
        })?;
        out.set(texts[index].as_ptr());
        length.iter().for_each(|length| length.set(texts[index].count_bytes()));
        Ok(())
    })
}
