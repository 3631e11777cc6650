//! Which device a run is on, and why that one.

use super::args::BackendChoice;
use super::status::Failure;
use warpheap::build_info;
use warpheap::simt::Mode;
use warpheap::{Backend, Device, Error, Module};

/// A device with its kernels loaded.
pub struct Chosen {
    /// The device.
    pub device: Device,
    /// The kernels.
    pub module: Module,
    /// Which of several GPUs.
    pub ordinal: u32,
    /// Why it is not a GPU, where no one said that it should not be.
    pub why_not_cuda: Option<String>,
}

impl Chosen {
    /// The CPU, with lanes scheduled as `mode` says.
    pub fn cpu(mode: Option<Mode>) -> Result<Chosen, Failure> {
        let device = mode.map_or_else(Device::cpu, Device::cpu_with);
        let module = device.native_module()?;
        Ok(Chosen { device, module, ordinal: 0, why_not_cuda: None })
    }

    /// GPU number `ordinal`.
    pub fn cuda(ordinal: u32) -> Result<Chosen, Failure> {
        Chosen::try_cuda(ordinal).map_err(|error| {
            Failure::from(error).with(|message| {
                format!(
                    "{message}\n`warpheap doctor` lists what this machine has; `--backend cpu` needs no GPU"
                )
            })
        })
    }

    fn try_cuda(ordinal: u32) -> Result<Chosen, Error> {
        let device = Device::cuda(ordinal)?;
        let module = device.load_module(ptx()?)?;
        Ok(Chosen { device, module, ordinal, why_not_cuda: None })
    }
}

/// The embedded kernels. A program without them has no use for a GPU.
pub fn ptx() -> Result<&'static str, Error> {
    build_info::ptx().map_err(|why| Error::NoDevice {
        asked: "a GPU".into(),
        found: "this program was built without kernels for one".into(),
        advice: why.into(),
    })
}

/// The device that was asked for. With `auto` it is the GPU if there is a usable one and the CPU otherwise.
pub fn choose(backend: BackendChoice, ordinal: Option<u32>, mode: Option<Mode>) -> Result<Chosen, Failure> {
    match backend {
        BackendChoice::Cpu => Chosen::cpu(mode),
        BackendChoice::Auto if mode.is_some() => Chosen::cpu(mode),
        BackendChoice::Cuda => Chosen::cuda(ordinal.unwrap_or(0)),
        // Who names a GPU wants that one.
        BackendChoice::Auto if ordinal.is_some() => Chosen::cuda(ordinal.unwrap_or(0)),
        BackendChoice::Auto => match Chosen::try_cuda(0) {
            Ok(chosen) => Ok(chosen),
            Err(Error::NoDevice { found, .. }) => {
                Ok(Chosen { why_not_cuda: Some(found), ..Chosen::cpu(mode)? })
            }
            Err(error) => Ok(Chosen { why_not_cuda: Some(error.to_string()), ..Chosen::cpu(mode)? }),
        },
    }
}

/// The device in one line.
pub fn describe(device: &Device, mode: Option<Mode>) -> Result<String, Error> {
    let info = device.info()?;
    if device.backend() == Backend::Cpu {
        return Ok(match mode {
            Some(Mode::Replay { .. }) => "CPU, replay: one OS thread, the seed picks every next step".into(),
            _ => {
                let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
                format!("CPU, {workers} workers running the kernels as warps of {} lanes", info.warp_size)
            }
        });
    }
    let (major, minor) = info.compute_capability.unwrap_or_default();
    Ok(format!("{}, sm_{major}{minor}, {} multiprocessors", info.name, info.multiprocessors))
}
