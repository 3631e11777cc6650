//! Modules: kernels loaded on a device.

use super::backend::{Image, KernelAttributes, Range, Transfer};
use super::code::{Code, Named, Variables};
use super::device::Device;
use super::ptx::checked_cubins;
use crate::error::{InvalidModule, Result};
use crate::lock::lock;
use crate::simt::{OnPanic, note_heap};
use std::fmt;
use std::mem::offset_of;
use std::sync::Arc;
use warpheap_device::global::GlobalHeap;
use warpheap_device::kernel::Kernel;
use warpheap_device::panic::{PanicSettings, SYMBOL};

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
    // Before the device: a module must be dropped before its context.
    code: Arc<Code>,
    device: Device,
}

impl Device {
    /// Compiles `ptx` for this device. On the CPU only the declarations of the text are read: the
    /// kernels are the native functions of the program.
    ///
    /// # Errors
    /// [`Jit`](crate::Error::Jit) with the compiler's log.
    pub fn load_module(&self, ptx: &str) -> Result<Module> {
        Module::load(self, Some(Image { ptx, cubins: &[] }), None)
    }

    /// Loads the first of `cubins` that the driver accepts for this device, without compiling it.
    /// `warpheap_build::Builder::cubin` compiles cubins of PTX at build time. If there is none, for
    /// instance because all are empty or for other architectures, compiles `ptx` as
    /// [`load_module`](Self::load_module) does. The CPU runs no cubin.
    ///
    /// ```
    /// # use warpheap::Device;
    /// # const PTX: &str = "";
    /// # const CUBIN: &[u8] = &[];
    /// // const PTX: &str = include_str!(env!("WARPHEAP_PTX_SM_70"));
    /// // const CUBIN: &[u8] = include_bytes!(env!("WARPHEAP_CUBIN_SM_90"));
    /// let module = Device::cpu().load_module_with_cubins(PTX, &[CUBIN])?;
    /// assert_eq!(module.cubin_arch(), None);
    /// # Ok::<(), warpheap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidModule`](crate::Error::InvalidModule) for a cubin of other PTX and for bytes that
    /// are no cubin of `warpheap-build`, also if they are not for this device.
    /// [`Jit`](crate::Error::Jit) with the compiler's log.
    pub fn load_module_with_cubins(&self, ptx: &str, cubins: &[&[u8]]) -> Result<Module> {
        let cubins = checked_cubins(ptx, cubins)?;
        Module::load(self, Some(Image { ptx, cubins: &cubins }), None)
    }

    /// Compiles some kernels of `ptx`, everything that they can reach, and all variables. A driver
    /// needs seconds for each kernel that reaches much code, the slow paths of a heap for instance.
    /// [`kernel_names!`](crate::kernel_names!) makes the list. Launching any other kernel is an
    /// error, on the CPU too.
    ///
    /// ```
    /// use warpheap::error::{Error, InvalidModule};
    /// use warpheap::{Device, kernel_names};
    /// # use warpheap_device::kernel;
    /// # kernel! {
    /// #     /// # Safety
    /// #     /// None.
    /// #     pub unsafe fn double() {}
    /// #     /// # Safety
    /// #     /// None.
    /// #     pub unsafe fn sum() {}
    /// # }
    /// # const PTX: &str = ".version 7.0 .target sm_70 \
    /// #     .visible .entry double() { ret; } .visible .entry sum() { ret; }";
    ///
    /// let module = Device::cpu().load_kernels(PTX, &kernel_names![double])?;
    /// assert_eq!(module.kernels().collect::<Vec<_>>(), ["double"]);
    /// let error = module.check(sum).unwrap_err();
    /// assert!(matches!(
    ///     error,
    ///     Error::InvalidModule(InvalidModule::UnknownKernel { kernel: "sum", .. })
    /// ));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidModule`](crate::Error::InvalidModule) for a kernel that is not in `ptx`,
    /// [`Jit`](crate::Error::Jit).
    pub fn load_kernels(&self, ptx: &str, kernels: &[&'static str]) -> Result<Module> {
        Module::load(self, Some(Image { ptx, cubins: &[] }), Some(kernels))
    }

    /// The kernels that are compiled into this program, without PTX. Only the CPU can run them.
    ///
    /// # Errors
    /// [`NotSupported`](crate::Error::NotSupported) on a GPU.
    pub fn native_module(&self) -> Result<Module> {
        Module::load(self, None, None)
    }

    /// Some kernels of this program, for the CPU. Launching any other kernel is an error, as with
    /// [`load_kernels`](Self::load_kernels).
    ///
    /// # Errors
    /// [`NotSupported`](crate::Error::NotSupported) on a GPU.
    pub fn native_kernels(&self, kernels: &[&'static str]) -> Result<Module> {
        Module::load(self, None, Some(kernels))
    }

    /// The module of the library's own kernels. All concurrent users share one. `load` makes it.
    pub(crate) fn shared_module(&self, load: impl FnOnce() -> Result<Module>) -> Result<Module> {
        let mut slot = lock(self.own_kernels());
        if let Some(code) = slot.upgrade() {
            return Ok(Module { code, device: self.clone() });
        }
        let module = load()?;
        *slot = Arc::downgrade(&module.code);
        Ok(module)
    }
}

impl Module {
    /// A module of `image`, or of the native functions of the program. Restricted to the kernels in
    /// `only`, if given.
    fn load(device: &Device, image: Option<Image<'_>>, only: Option<&[&'static str]>) -> Result<Module> {
        let code = Arc::new(Code::load(device.driver(), image, only)?);
        Ok(Module { code, device: device.clone() })
    }

    /// The device that the module was loaded on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The log of the driver's compiler for the accepted PTX; empty on the CPU, and for a cubin.
    pub fn log(&self) -> &str {
        self.code.log()
    }

    /// The architecture of the cubin that was loaded, for instance `sm_90`. `None` if the driver
    /// compiled the PTX, and on the CPU.
    pub fn cubin_arch(&self) -> Option<&str> {
        self.code.cubin_arch()
    }

    /// The names of the kernels that the PTX declares; empty without PTX.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.code.kernels()
    }

    /// Checks that the PTX has `kernel` with the parameters that the program passes. The first
    /// launch of each kernel on a GPU makes this check. The CPU runs the program's native functions
    /// and does not need it. Always succeeds without PTX.
    ///
    /// # Errors
    /// [`InvalidModule`](crate::Error::InvalidModule).
    pub fn check<K: Kernel>(&self, _kernel: K) -> Result<()> {
        self.code.check::<K>()
    }

    /// Properties of the compiled `kernel`: registers, spills, maximum block size.
    ///
    /// # Errors
    /// The errors of [`check`](Self::check), on a GPU.
    pub fn attributes<K: Kernel>(&self, _kernel: K) -> Result<KernelAttributes> {
        Ok(self.code.function::<K>()?.attributes)
    }

    /// The address range of the global allocator `name`, which the program expects to have `bytes`
    /// bytes. `None` on the CPU.
    pub(crate) fn global_allocator(&self, name: &'static str, bytes: u64) -> Result<Option<Range>> {
        self.code.variable(name, bytes, InvalidModule::NoGlobalHeap { symbol: name })
    }

    /// Sets the heap of the kernels' `alloc` on the CPU.
    pub(crate) fn set_global_heap_on_cpu(&self, heap: Option<GlobalHeap>) {
        if let Some(heap) = &heap {
            let (first, bytes) = heap.memory();
            note_heap(first, bytes);
        }
        self.code.set_global_heap(heap);
    }

    pub(super) fn code(&self) -> &Code {
        &self.code
    }

    /// Calls `write` while no launch of the module is in progress and the device is idle.
    pub(super) fn while_idle(&self, write: impl FnOnce(&mut Variables) -> Result<()>) -> Result<()> {
        // Before blocking launches: a running kernel may wait for one that is yet to be launched.
        // The driver's wait, which leaves panics to the next wait of the program.
        self.device.driver().synchronize()?;
        let mut named = self.code.block_launches();
        self.device.driver().synchronize()?;
        write(&mut named)
    }

    /// Sets what a panic of a thread in the module's kernels ends: the thread
    /// ([`OnPanic::EndThread`], the default), or the grid. Waits for the device; launches of the
    /// module wait until the call is done.
    ///
    /// A panic that ends only threads is returned once, as
    /// [`KernelFault::Panicked`](crate::error::KernelFault::Panicked), by the first of these calls
    /// after it, whatever the stream: [`Device::synchronize`](crate::Device::synchronize),
    /// `synchronize` and `is_done` of streams and events, and copies to the host that wait.
    ///
    /// # Errors
    /// [`InvalidModule`](crate::Error::InvalidModule) if the kernels were built without the feature
    /// `panic-handler` of `warpheap-device`, or an earlier failure of the device.
    pub fn set_on_panic(&self, on_panic: OnPanic) -> Result<()> {
        let missing = InvalidModule::NoPanicHandler { symbol: SYMBOL };
        let place = self.code.variable(SYMBOL, size_of::<PanicSettings>() as u64, missing)?;
        self.while_idle(|_| {
            self.code.set_on_panic(on_panic);
            let Some(Range { address, .. }) = place else { return Ok(()) };
            let ends_grid = u64::from(on_panic == OnPanic::EndGrid);
            let write = Transfer::Write {
                to: address + offset_of!(PanicSettings, ends_grid) as u64,
                from: (&raw const ends_grid).cast(),
                bytes: size_of_val(&ends_grid),
            };
            // SAFETY: the word is inside the variable, whose size was checked; no kernel of the
            // module runs.
            unsafe { self.device.driver().transfer(write) }
        })
    }

    /// Calls `write` to write the module's variables while no launch of the module is in progress
    /// and the device is idle. Each later launch checks that the memory that they name is still
    /// live. After a failure of `write`, launches fail until a later call succeeds.
    pub(crate) fn write_variables(
        &self,
        names: Option<(u64, u64)>,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.while_idle(|named| {
            *named = Variables::Unknown;
            write()?;
            *named = match names {
                None => Variables::Nothing,
                Some((address, bytes)) => {
                    let range = Range { address, bytes };
                    let number = self.device.registry().number(range);
                    number.map_or(Variables::Unknown, |number| Variables::Memory(Named { range, number }))
                }
            };
            Ok(())
        })
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({})", self.device)
    }
}
