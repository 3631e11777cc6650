//! Modules: compiled kernels, and the check that they match the program's declarations.

use super::backend::{Function, KernelAttributes, ModuleBackend, Range};
use super::device::Device;
use super::ptx::{Ptx, cut, describe, names_in_words, signature};
use crate::error::{Bytes, Error, InvalidModule, Result};
use std::any::TypeId;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};
use warpheap_device::kernel::{Kernel, KernelArgs};

/// The names of kernels, for [`Device::load_kernels`]: `kernel_names![double, sum]` is `["double",
/// "sum"]`. Compiles only if kernels of those names exist.
#[macro_export]
macro_rules! kernel_names {
    ($($kernel:path),* $(,)?) => {
        [$(<$kernel as $crate::driver::Kernel>::NAME),*]
    };
}

/// Kernels loaded on a device. Cloning gives another handle to the same module.
#[derive(Clone)]
pub struct Module {
    inner: Arc<Inner>,
}

struct Inner {
    // Before the device: a module must be dropped before its context.
    backend: Box<dyn ModuleBackend>,
    /// The declarations of the PTX; `None` for native functions.
    ptx: Option<Ptx>,
    /// The kernels that the module is restricted to; `None` for all.
    only: Option<Vec<&'static str>>,
    /// The kernels that were looked up and checked.
    functions: RwLock<HashMap<TypeId, Arc<Function>>>,
    /// The memory that the module's variables name. It is not a kernel argument, but like one it
    /// must be live at each launch.
    named: RwLock<Variables>,
    device: Device,
}

/// A weak handle of a module.
#[derive(Clone, Default)]
pub(super) struct WeakModule(Weak<Inner>);

impl WeakModule {
    /// A handle, if another one still exists.
    pub fn upgrade(&self) -> Option<Module> {
        self.0.upgrade().map(|inner| Module { inner })
    }
}

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

impl Module {
    /// A module of `ptx`, or of the native functions of the program. Restricted to the kernels in
    /// `only`, if given.
    pub(crate) fn load(device: &Device, ptx: Option<&str>, only: Option<&[&'static str]>) -> Result<Module> {
        let ptx = match (ptx, only) {
            (Some(ptx), Some(only)) => Some(Cow::Owned(cut(ptx, only)?)),
            (ptx, _) => ptx.map(Cow::Borrowed),
        };
        let inner = Inner {
            backend: device.driver().module(ptx.as_deref())?,
            ptx: ptx.as_deref().map(Ptx::parse),
            only: only.map(<[_]>::to_vec),
            functions: RwLock::default(),
            named: RwLock::default(),
            device: device.clone(),
        };
        Ok(Module { inner: Arc::new(inner) })
    }

    /// A weak handle, which does not keep the module alive.
    pub(super) fn downgrade(&self) -> WeakModule {
        WeakModule(Arc::downgrade(&self.inner))
    }

    /// The device that the module was loaded on.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The log of the driver's compiler for the accepted PTX; empty on the CPU.
    pub fn log(&self) -> &str {
        self.inner.backend.log()
    }

    /// The names of the kernels that the PTX declares; empty without PTX.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.inner.ptx.iter().flat_map(|ptx| ptx.entries.keys().map(String::as_str))
    }

    /// Checks that the PTX has `kernel` with the parameters that the program passes. The first
    /// launch of each kernel on a GPU makes this check. The CPU runs the program's native functions
    /// and does not need it. Always succeeds without PTX.
    ///
    /// # Errors
    /// [`Error::InvalidModule`].
    pub fn check<K: Kernel>(&self, _kernel: K) -> Result<()> {
        self.check_named_kernel(K::NAME)?;
        let Some(ptx) = &self.inner.ptx else { return Ok(()) };
        let Some(found) = ptx.entries.get(K::NAME) else {
            return Err(Error::InvalidModule(InvalidModule::UnknownKernel {
                kernel: K::NAME,
                known: ptx.entries_in_words(),
            }));
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
        match &self.inner.only {
            Some(only) if !only.contains(&kernel) => {
                Err(Error::InvalidModule(InvalidModule::UnknownKernel {
                    kernel,
                    known: names_in_words(only.iter().copied()),
                }))
            }
            _ => Ok(()),
        }
    }

    /// Properties of the compiled `kernel`: registers, spills, maximum block size.
    ///
    /// # Errors
    /// As for [`check`](Self::check), on a GPU.
    pub fn attributes<K: Kernel>(&self, kernel: K) -> Result<KernelAttributes> {
        Ok(self.function(kernel)?.attributes)
    }

    /// The address range of the variable `name`, which the program expects to have `bytes` bytes.
    /// `None` on the CPU.
    pub(crate) fn variable(&self, name: &'static str, bytes: u64) -> Result<Option<Range>> {
        if let Some(ptx) = &self.inner.ptx {
            let Some(found) = ptx.globals.get(name) else {
                return Err(InvalidModule::NoGlobalHeap { symbol: name }.into());
            };
            if found.size as u64 != bytes {
                let (ptx, program) = (Bytes(found.size as u64), Bytes(bytes));
                return Err(InvalidModule::GlobalHeapLayout { symbol: name, ptx, program }.into());
            }
        }
        let place = self.inner.backend.variable(name)?;
        match place {
            // The driver's size is authoritative, whatever the parser found in the text.
            Some(place) if place.bytes != bytes => {
                let (ptx, program) = (Bytes(place.bytes), Bytes(bytes));
                Err(InvalidModule::GlobalHeapLayout { symbol: name, ptx, program }.into())
            }
            place => Ok(place),
        }
    }

    /// The memory that the module's variables name. While the guard lives, nothing writes them.
    pub(super) fn named_memory(&self) -> NamedMemory<'_> {
        self.inner.named.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `write` to write the module's variables while no launch of the module is in progress
    /// and the device is idle. Each later launch checks that the memory that they name is still
    /// live. After a failure of `write`, launches fail until a later call succeeds.
    pub(crate) fn write_variables(
        &self,
        names: Option<(u64, u64)>,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let device = &self.inner.device;
        // Before blocking launches: a running kernel may wait for one that is yet to be launched.
        device.synchronize()?;
        let mut named = self.inner.named.write().unwrap_or_else(PoisonError::into_inner);
        device.synchronize()?;
        *named = Variables::Unknown;
        write()?;
        *named = match names {
            None => Variables::Nothing,
            Some((address, bytes)) => {
                let range = Range { address, bytes };
                let number = device.registry().number(range);
                number.map_or(Variables::Unknown, |number| Variables::Memory(Named { range, number }))
            }
        };
        Ok(())
    }

    /// The kernel. The first call checks it.
    pub(crate) fn function<K: Kernel>(&self, kernel: K) -> Result<Arc<Function>> {
        let id = TypeId::of::<K>();
        // A panic elsewhere leaves the map consistent: every change to it is one call.
        let functions = self.inner.functions.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(&id) {
            return Ok(function.clone());
        }
        drop(functions);
        match self.inner.device.backend() {
            super::Backend::Cpu => self.check_named_kernel(K::NAME)?,
            _ => self.check(kernel)?,
        }
        let function = Arc::new(self.inner.backend.function(K::NAME)?);
        let mut functions = self.inner.functions.write().unwrap_or_else(PoisonError::into_inner);
        Ok(functions.entry(id).or_insert(function).clone())
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({})", self.inner.device)
    }
}
