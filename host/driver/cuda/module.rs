//! Modules of a GPU: PTX that the driver compiles, or cubins of it.

use super::context::{Context, attribute};
use super::panics::Panics;
use super::sys::{
    Api, Handle, INVALID_IMAGE, INVALID_VALUE, JIT_COMPILER_NOT_FOUND, LinkApi, NO_BINARY_FOR_GPU,
    OUT_OF_MEMORY, SUCCESS, Status, UNSUPPORTED_PTX_VERSION,
};
use crate::driver::backend::{Function, Image, KernelAttributes, ModuleBackend, Range};
use crate::driver::ptx::{Ptx, Stack, link_inputs, register_limit, stacks};
use crate::error::{Bytes, Error, InvalidModule, Result};
use cudarc::driver::sys::{
    CUdevice_attribute as DeviceAttribute, CUfunction, CUfunction_attribute as Attribute, CUjit_option,
    CUjitInputType, CUlinkState, CUmodule,
};
use std::collections::HashMap;
use std::ffi::{CString, c_uint, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use warpheap_device::panic::{PanicSettings, SYMBOL};
use warpheap_ptx::Cubin;

pub(super) struct CudaModule {
    context: Arc<Context>,
    raw: Handle<CUmodule>,
    log: String,
    /// The architecture of the cubin that was loaded, if one was.
    cubin_arch: Option<String>,
    /// The stack of each kernel.
    stacks: HashMap<String, Stack>,
    /// What the panic handler of the kernels reads, if they have it.
    panics: Option<PanicSettings>,
}

impl CudaModule {
    /// Loads a cubin of `image`, or compiles its PTX if none is for this device.
    pub fn load(context: Arc<Context>, image: Image<'_>) -> Result<CudaModule> {
        let ask = |which| attribute(&context, which);
        let capability = (
            ask(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            ask(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let (raw, cubin_arch, log) = match load_cubin(&context, image.cubins, capability)? {
            Some((raw, arch)) => (raw, Some(arch), String::new()),
            None => {
                let (raw, log) = compile(&context, image.ptx)?;
                (raw, None, log)
            }
        };
        let declared = Ptx::parse(image.ptx);
        let panics = context.panics().filter(|_| declared.globals.contains_key(SYMBOL));
        let panics = panics.map(Panics::settings);
        let stacks = stacks(image.ptx);
        context.raise_stack_limit(stacks.values().copied());
        let module = CudaModule { context, raw: Handle(raw), log, cubin_arch, stacks, panics };
        module.load_kernels(&declared)?;
        Ok(module)
    }

    /// Makes the driver load every kernel now. With lazy loading it loads a kernel at its first
    /// launch and waits for all running kernels before. That deadlocks if a running kernel waits
    /// for the new launch.
    fn load_kernels(&self, ptx: &Ptx) -> Result<()> {
        for name in ptx.entries.keys() {
            let function = self.raw_function(name)?;
            self.attribute(function, Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?;
        }
        Ok(())
    }

    /// The variable that the panic handler of the kernels reads, and its value, if they have one.
    pub fn panic_settings(&self) -> Result<Option<(Range, PanicSettings)>> {
        let Some(settings) = self.panics else { return Ok(None) };
        let (Some(place), program) = (self.variable(SYMBOL)?, size_of_val(&settings) as u64) else {
            return Ok(None);
        };
        if place.bytes != program {
            let (ptx, program) = (Bytes(place.bytes), Bytes(program));
            return Err(InvalidModule::VariableLayout { symbol: SYMBOL, ptx, program }.into());
        }
        Ok(Some((place, settings)))
    }

    fn raw_function(&self, name: &str) -> Result<CUfunction> {
        let symbol = CString::new(name).expect("an identifier has no zero byte");
        let mut function = null_mut();
        self.context.call("cuModuleGetFunction", |api| {
            // SAFETY: a live module and a terminated string; the driver writes the handle to
            // `function`.
            unsafe { (api.module_get_function)(&mut function, self.raw.0, symbol.as_ptr()) }
        })?;
        Ok(function)
    }

    fn attribute(&self, function: CUfunction, attribute: Attribute) -> Result<u32> {
        let mut value = 0;
        self.context.call("cuFuncGetAttribute", |api| {
            // SAFETY: a function of this module; the driver writes the value to `value`.
            unsafe { (api.func_get_attribute)(&mut value, attribute, function) }
        })?;
        Ok(value.try_into().unwrap_or(0))
    }
}

impl ModuleBackend for CudaModule {
    fn function(&self, name: &'static str) -> Result<Function> {
        let function = self.raw_function(name)?;
        let ask = |attribute| self.attribute(function, attribute);
        let stack = self.stacks.get(name).copied().unwrap_or_default();
        let attributes = KernelAttributes {
            stack_bytes: stack.least,
            has_open_stack: stack.is_open,
            registers: ask(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: ask(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared_bytes: ask(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            max_threads_per_block: ask(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            ptx_version: ask(Attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
            binary_version: ask(Attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
        };
        let module = self.panics.map_or(0, |panics| panics.module);
        Ok(Function { raw: function.cast(), module, launched: AtomicBool::new(false), attributes })
    }

    fn variable(&self, name: &'static str) -> Result<Option<Range>> {
        let symbol = CString::new(name).expect("an identifier has no zero byte");
        let (mut address, mut bytes) = (0, 0);
        self.context.call("cuModuleGetGlobal", |api| {
            // SAFETY: a live module and a terminated string; the driver writes the address and the
            // length.
            unsafe { (api.module_get_global)(&mut address, &mut bytes, self.raw.0, symbol.as_ptr()) }
        })?;
        Ok(Some(Range { address, bytes: bytes as u64 }))
    }

    fn log(&self) -> &str {
        &self.log
    }

    fn cubin_arch(&self) -> Option<&str> {
        self.cubin_arch.as_deref()
    }
}

/// Makes the driver compile `ptx`. Returns the module, and the compiler's log.
fn compile(context: &Context, ptx: &str) -> Result<(CUmodule, String)> {
    let text = CString::new(ptx).map_err(|zero| Error::Jit {
        code: 0,
        name: "no text".into(),
        advice: format!("there is a zero byte at {}; pass the PTX as text", zero.nul_position()),
        log: String::new(),
    })?;
    let mut logs = Logs::new();
    let (mut options, mut values) = logs.options();
    let count = options.len() as c_uint;
    let mut raw = null_mut();
    let current = context.enter()?;
    let linked = Linked::new(ptx);
    let image = linked.as_ref().map_or(text.as_ptr().cast(), Linked::image);
    let (api, options, values) = (context.api, options.as_mut_ptr(), values.as_mut_ptr());
    // SAFETY: the text ends with a zero. There are as many values as options. Two values point to
    // buffers that outlive the call, and two others give their lengths.
    let status = unsafe { (api.module_load_data_ex)(&mut raw, image, count, options, values) };
    // The driver has copied the image by now.
    drop(linked);
    drop(current);
    match status {
        SUCCESS => Ok((raw, text_of(&logs.info))),
        _ => Err(rejected(api, status, ptx, &logs)),
    }
}

impl Drop for CudaModule {
    fn drop(&mut self) {
        // A kernel of the module may still run. After a kernel fault there is no work to wait for,
        // and the stream has reported it to its owner.
        if self.context.synchronize().is_ok() {
            if let (Some(panics), Some(settings)) = (self.context.panics(), self.panics) {
                panics.unloaded(settings.module);
            }
            // SAFETY: loaded by `load`, unloaded once.
            self.context.release("cuModuleUnload", |api| unsafe { (api.module_unload)(self.raw.0) });
        }
    }
}

/// The compiler's logs: two buffers that the driver fills and terminates with a zero.
struct Logs {
    info: Vec<u8>,
    error: Vec<u8>,
}

const OPTIONS: [CUjit_option; 5] = [
    CUjit_option::CU_JIT_INFO_LOG_BUFFER,
    CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
    CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
    CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    CUjit_option::CU_JIT_LOG_VERBOSE,
];

impl Logs {
    const BYTES: usize = 64 << 10;

    fn new() -> Logs {
        Logs { info: vec![0; Logs::BYTES], error: vec![0; Logs::BYTES] }
    }

    /// The options and their values: pointers, or integers stored as pointers. The driver writes to
    /// both arrays.
    fn options(&mut self) -> ([CUjit_option; 5], [*mut c_void; 5]) {
        // One byte less than the buffer, so that the text always ends with a zero.
        let bytes = without_provenance_mut(Logs::BYTES - 1);
        let (info, error) = (self.info.as_mut_ptr().cast(), self.error.as_mut_ptr().cast());
        (OPTIONS, [info, bytes, error, bytes, without_provenance_mut(1)])
    }
}

/// The text before the terminating zero.
fn text_of(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim_end().into()
}

/// The error for PTX that the driver rejected.
fn rejected(api: &Api, status: Status, ptx: &str, logs: &Logs) -> Error {
    let (name, detail) = api.explain(status);
    let ptx = Ptx::parse(ptx);
    let advice = match status {
        UNSUPPORTED_PTX_VERSION => {
            format!("its PTX version {} is too new for this driver: update the driver", ptx.version)
        }
        NO_BINARY_FOR_GPU => {
            format!(
                "it is built for {} and later, and this GPU is older: build it for an older architecture",
                ptx.target
            )
        }
        JIT_COMPILER_NOT_FOUND => {
            "the driver's compiler is missing (libnvidia-ptxjitcompiler): install the complete driver".into()
        }
        OUT_OF_MEMORY => "the GPU is out of memory".into(),
        _ => format!("{detail}; its header says PTX {} for {}", ptx.version, ptx.target),
    };
    let (error, info) = (text_of(&logs.error), text_of(&logs.info));
    let log = match (error.is_empty(), info.is_empty()) {
        (true, true) => "(no compiler log)".into(),
        (false, _) => error,
        (true, false) => info,
    };
    Error::Jit { code: status, name, advice, log }
}

// Cubins: kernels that the driver loads without compiling them.

/// Loads the first of `cubins` that the driver accepts for this device, which has this compute
/// capability. Returns it with its architecture. `None` if there is none.
fn load_cubin(
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

// PTX linking by the driver: compiles each function once, instead of once per kernel that can
// reach it.
//
// Linked functions follow the calling convention, so the values that a kernel holds in registers
// stay there across a call. Without linking, a kernel spills such values to its stack before the
// first call that it may make.

/// The optimisation level of modules with recursion. From level 2 on, the driver's compiler makes
/// wrong code of some recursive functions (`docs/miscompiled.md`).
const RECURSION_LEVEL: u32 = 1;

/// The linked image of a PTX text, which [`link_inputs`] divides if it has recursive functions. The
/// image lives as long as this value.
struct Linked {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_ends_at_its_zero() {
        assert_eq!(text_of(b"one\ntwo\n\0rest"), "one\ntwo");
        assert_eq!(text_of(b"no end"), "no end");
        assert_eq!(text_of(&Logs::new().error), "");
    }

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
