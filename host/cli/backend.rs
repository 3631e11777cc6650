//! Which device a run is on, and why that one.

use super::args::{BackendChoice, GpuArgs};
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

    /// The GPU that was named, or the first.
    pub fn cuda(gpu: GpuArgs) -> Result<Chosen, Failure> {
        Chosen::try_cuda(gpu).map_err(|error| {
            Failure::from(error).with(|message| {
                format!(
                    "{message}\n`warpheap doctor` lists what this machine has; `--backend cpu` needs no GPU"
                )
            })
        })
    }

    fn try_cuda(gpu: GpuArgs) -> Result<Chosen, Error> {
        let ordinal = gpu.device.unwrap_or(0);
        let device = Device::cuda(ordinal)?;
        let capability = match gpu.kernels {
            Some(kernels) => Some(kernels.capability()),
            None => device.info()?.compute_capability,
        };
        let module = device.load_module(ptx(capability)?)?;
        Ok(Chosen { device, module, ordinal, why_not_cuda: None })
    }
}

/// The embedded kernels for a GPU. A program without them has no use for one.
fn ptx(capability: Option<(u32, u32)>) -> Result<&'static str, Error> {
    build_info::ptx_for(capability).map_err(|why| Error::NoDevice {
        asked: "a GPU".into(),
        found: "this program was built without kernels for one".into(),
        advice: why.into(),
    })
}

/// The device that was asked for. With `auto` it is the GPU if there is a usable one and the CPU otherwise.
pub fn choose(backend: BackendChoice, gpu: GpuArgs, mode: Option<Mode>) -> Result<Chosen, Failure> {
    match backend {
        BackendChoice::Cpu => Chosen::cpu(mode),
        BackendChoice::Auto if mode.is_some() => Chosen::cpu(mode),
        BackendChoice::Cuda => Chosen::cuda(gpu),
        // Who names a GPU or its kernels wants that.
        BackendChoice::Auto if gpu.device.is_some() || gpu.kernels.is_some() => Chosen::cuda(gpu),
        BackendChoice::Auto => match Chosen::try_cuda(gpu) {
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

/// What to do about a stress that the watchdog ended.
pub fn after_a_hang(backend: Backend, replay: bool) -> &'static str {
    match backend {
        Backend::Cuda => {
            "If it was only slow, allow more time with --watchdog. Otherwise try `warpheap stress --replay` with \
             the same seed: it runs on the CPU and names the lanes that wait."
        }
        _ if replay => {
            "A replay in which lanes wait for each other ends by itself and names them, so this one was slow: \
             allow more time with --watchdog, or ask for fewer --threads."
        }
        _ => {
            "If it was only slow, allow more time with --watchdog, or ask for fewer --threads. Otherwise run it \
             with --replay and the same seed, which names the lanes that wait."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_not_told_of_another_backend() {
        for replay in [false, true] {
            let advice = after_a_hang(Backend::Cpu, replay);
            assert!(!advice.contains("GPU") && !advice.contains("CPU"), "{advice}");
            assert!(advice.contains("--watchdog") && advice.contains("--threads"), "{advice}");
        }
        assert!(!after_a_hang(Backend::Cpu, true).contains("--replay"));
        assert!(after_a_hang(Backend::Cuda, false).contains("CPU"));
    }
}
