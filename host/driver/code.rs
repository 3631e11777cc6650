//! The code of a module: compiled kernels, and the check that they match the program's
//! declarations.

use super::backend::{Backend, DeviceBackend, Function, Image, ModuleBackend, Range};
use super::ptx::{Ptx, describe, entries_in_words, extract_kernels, names_in_words, signature};
use crate::error::{Bytes, Error, InvalidModule, Result};
use crate::lock::lock;
use crate::simt::OnPanic;
use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use warpheap_device::global::GlobalHeap;
use warpheap_device::kernel::{Kernel, KernelArgs};

/// A range of device memory, and the number of the allocation that contains it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub range: Range,
    pub number: u64,
}

/// The memory that the variables of a module name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Variables {
    #[default]
    Nothing,
    Memory(Named),
    /// A write failed or panicked. The variables may hold the old value, the new one, or a mixture.
    Unknown,
}

/// While held, nothing writes the variables of the module.
pub(super) type NamedMemory<'a> = RwLockReadGuard<'a, Variables>;

/// The state that all handles of a module share. Dropped with the last handle.
pub(super) struct Code {
    backend: Box<dyn ModuleBackend>,
    /// Where the kernels run. The CPU does not need the check of the PTX.
    runs_on: Backend,
    /// The declarations of the PTX; `None` for native functions.
    ptx: Option<Ptx>,
    /// The kernels that the module is restricted to; `None` for all.
    only: Option<Vec<&'static str>>,
    /// The kernels that were looked up and checked.
    functions: RwLock<HashMap<TypeId, Arc<Function>>>,
    /// The memory that the module's variables name. It is not a kernel argument, but like one it
    /// must be live at each launch.
    named: RwLock<Variables>,
    /// What a panic ends, if the program has set it. For the CPU; a GPU has it in a variable.
    on_panic: Mutex<Option<OnPanic>>,
    /// The heap of the kernels' `alloc`. For the CPU; a GPU has it in a variable.
    global_heap: Mutex<Option<Arc<GlobalHeap>>>,
}

impl Code {
    /// The code of `image`, or of the native functions of the program. Restricted to the kernels in
    /// `only`, if given.
    pub fn load(
        device: &dyn DeviceBackend,
        image: Option<Image<'_>>,
        only: Option<&[&'static str]>,
    ) -> Result<Code> {
        let extracted = match (image, only) {
            (Some(image), Some(only)) => Some(extract_kernels(image.ptx, only)?),
            _ => None,
        };
        // A cubin is of the entire PTX.
        let image = extracted.as_deref().map(|ptx| Image { ptx, cubins: &[] }).or(image);
        Ok(Code {
            backend: device.module(image)?,
            runs_on: device.raw_info().backend,
            ptx: image.map(|image| Ptx::parse(image.ptx)),
            only: only.map(<[_]>::to_vec),
            functions: RwLock::default(),
            named: RwLock::default(),
            on_panic: Mutex::default(),
            global_heap: Mutex::default(),
        })
    }

    pub fn log(&self) -> &str {
        self.backend.log()
    }

    pub fn cubin_arch(&self) -> Option<&str> {
        self.backend.cubin_arch()
    }

    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.ptx.iter().flat_map(|ptx| ptx.entries.keys().map(String::as_str))
    }

    /// Checks that the PTX has `K` with the parameters that the program passes.
    pub fn check<K: Kernel>(&self) -> Result<()> {
        self.check_named_kernel(K::NAME)?;
        let Some(ptx) = &self.ptx else { return Ok(()) };
        let Some(found) = ptx.entries.get(K::NAME) else {
            return Err(unknown(K::NAME, entries_in_words(ptx)));
        };
        let expected = signature(K::Args::PARAMS);
        if *found == expected {
            return Ok(());
        }
        let (program, ptx) = (describe(&expected), describe(found));
        Err(InvalidModule::KernelSignature { kernel: K::NAME, program, ptx }.into())
    }

    /// Fails if the module is restricted to some kernels and this is not one of them.
    fn check_named_kernel(&self, kernel: &'static str) -> Result<()> {
        match &self.only {
            Some(only) if !only.contains(&kernel) => {
                Err(unknown(kernel, names_in_words(only.iter().copied())))
            }
            _ => Ok(()),
        }
    }

    /// The kernel. The first call checks it.
    pub fn function<K: Kernel>(&self) -> Result<Arc<Function>> {
        let id = TypeId::of::<K>();
        // A panic elsewhere leaves the map consistent: every change to it is one call.
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(&id) {
            return Ok(function.clone());
        }
        drop(functions);
        match self.runs_on {
            Backend::Cpu => self.check_named_kernel(K::NAME)?,
            Backend::Cuda => self.check::<K>()?,
        }
        let function = Arc::new(self.backend.function(K::NAME)?);
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        Ok(functions.entry(id).or_insert(function).clone())
    }

    /// The address range of the variable `name`, which the program expects to have `bytes` bytes.
    /// `None` on the CPU. Fails with `missing` if the PTX does not have it.
    pub fn variable(&self, name: &'static str, bytes: u64, missing: InvalidModule) -> Result<Option<Range>> {
        let check = |found| match found == bytes {
            true => Ok(()),
            false => {
                let (ptx, program) = (Bytes(found), Bytes(bytes));
                Err(Error::from(InvalidModule::VariableLayout { symbol: name, ptx, program }))
            }
        };
        if let Some(ptx) = &self.ptx {
            let found = ptx.globals.get(name).ok_or(missing)?;
            check(found.size as u64)?;
        }
        // The driver's size is authoritative, whatever the parser found in the text.
        let place = self.backend.variable(name)?;
        place.map_or(Ok(()), |place| check(place.bytes)).map(|()| place)
    }

    /// What a panic of a thread ends, if [`set_on_panic`](Self::set_on_panic) was called.
    pub fn on_panic(&self) -> Option<OnPanic> {
        *lock(&self.on_panic)
    }

    /// Sets what a panic of a thread ends.
    pub fn set_on_panic(&self, on_panic: OnPanic) {
        *lock(&self.on_panic) = Some(on_panic);
    }

    /// The heap of the kernels' `alloc` on the CPU.
    pub fn global_heap(&self) -> Option<Arc<GlobalHeap>> {
        lock(&self.global_heap).clone()
    }

    /// Sets the heap of the kernels' `alloc` on the CPU.
    pub fn set_global_heap(&self, heap: Option<GlobalHeap>) {
        *lock(&self.global_heap) = heap.map(Arc::new);
    }

    /// The memory that the module's variables name. While the guard lives, nothing writes them.
    pub fn named_memory(&self) -> NamedMemory<'_> {
        self.named.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Excludes launches of the module while the guard lives.
    pub fn block_launches(&self) -> RwLockWriteGuard<'_, Variables> {
        self.named.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(kernel: &'static str, known: String) -> Error {
    InvalidModule::UnknownKernel { kernel, known }.into()
}
