//! Cubins: kernels that the driver loads without compiling them.

use super::context::Context;
use super::sys::{INVALID_IMAGE, NO_BINARY_FOR_GPU, SUCCESS, Status, UNSUPPORTED_PTX_VERSION};
use crate::error::Result;
use cudarc::driver::sys::CUmodule;
use std::ptr::null_mut;
use warpheap_ptx::Cubin;

/// Loads the first of `cubins` that the driver accepts for this device, which has this compute
/// capability. Returns it with its architecture. `None` if there is none.
pub(super) fn load(
    context: &Context,
    cubins: &[Cubin<'_>],
    capability: (u32, u32),
) -> Result<Option<(CUmodule, String)>> {
    if cubins.is_empty() {
        return Ok(None);
    }
    let _current = context.enter()?;
    for cubin in cubins.iter().filter(|cubin| cubin.runs_on(capability)) {
        match load_one(context, cubin) {
            Ok(module) => return Ok(Some((module, cubin.arch.into()))),
            Err(status @ (NO_BINARY_FOR_GPU | INVALID_IMAGE | UNSUPPORTED_PTX_VERSION)) => {
                let (name, _) = context.api.explain(status);
                tracing::warn!(arch = cubin.arch, name, "the driver does not accept a cubin");
            }
            Err(status) => context.api.check("cuModuleLoadDataEx", status)?,
        }
    }
    let archs: Vec<_> = cubins.iter().map(|cubin| cubin.arch).collect();
    tracing::info!(?archs, ?capability, "no cubin was loaded: the driver compiles the PTX");
    Ok(None)
}

fn load_one(context: &Context, cubin: &Cubin<'_>) -> Result<CUmodule, Status> {
    let copy = aligned(cubin.elf);
    let (load, image) = (context.api.module_load_data_ex, copy.as_ptr().cast());
    let mut module = null_mut();
    // SAFETY: a complete ELF as the assembler wrote it, which the hash in its trailer shows, with
    // the alignment of its headers. There are no options. The driver has copied the image when it
    // returns.
    let status = unsafe { load(&mut module, image, 0, null_mut(), null_mut()) };
    if status == SUCCESS { Ok(module) } else { Err(status) }
}

/// A copy of an ELF with the alignment of its headers, which bytes of a program need not have.
fn aligned(elf: &[u8]) -> Vec<u64> {
    let words = elf.chunks(size_of::<u64>()).map(|chunk| {
        let mut word = [0; size_of::<u64>()];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_all_bytes() {
        for len in 0..20 {
            let bytes: Vec<u8> = (1..=len).collect();
            let copied: Vec<u8> = aligned(&bytes).iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert_eq!(&copied[..bytes.len()], bytes);
            assert!(copied[bytes.len()..].iter().all(|byte| *byte == 0) && copied.len() < bytes.len() + 8);
        }
    }
}
