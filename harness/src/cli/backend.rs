//! The device of a run, and the reason for the choice.

use super::args::{BackendChoice, DeviceArgs, LaunchArgs};
use super::console::Console;
use super::status::Failure;
use warpheap::KernelImage;
use warpheap::simt::Mode;
use warpheap::{Backend, Device, Error};
use warpheap_harness::OwnModule;

/// A device with its kernels loaded.
pub struct Chosen {
    /// The device.
    pub device: Device,
    /// The kernels.
    pub own: OwnModule,
    /// Ordinal of the GPU.
    pub ordinal: u32,
    /// Why the CPU was chosen, if the user did not ask for it.
    pub why_not_cuda: Option<String>,
}

/// A device of which only the memory is used, without kernels.
pub struct Bare {
    /// The device.
    pub device: Device,
    /// Why the CPU was chosen, if the user did not ask for it.
    pub why_not_cuda: Option<String>,
}

impl Chosen {
    /// The CPU with `kernels`, and lanes scheduled by `mode`.
    pub fn cpu(mode: Option<Mode>, kernels: &[&'static str]) -> Result<Chosen, Failure> {
        let device = mode.map_or_else(Device::cpu, Device::cpu_with);
        let own = OwnModule::load(&device, kernels)?;
        Ok(Chosen { device, own, ordinal: 0, why_not_cuda: None })
    }

    /// The selected GPU, or the first, with `kernels`.
    pub fn cuda(launch: LaunchArgs, kernels: &[&'static str]) -> Result<Chosen, Failure> {
        Chosen::try_cuda(launch, kernels).map_err(no_cuda)
    }

    fn try_cuda(launch: LaunchArgs, kernels: &[&'static str]) -> Result<Chosen, Error> {
        let ordinal = launch.device.device.unwrap_or(0);
        let device = Device::cuda(ordinal)?;
        let own = match launch.kernels {
            Some(choice) => OwnModule::load_for(&device, choice.capability(), kernels)?,
            None => OwnModule::load(&device, kernels)?,
        };
        Ok(Chosen { device, own, ordinal, why_not_cuda: None })
    }

    /// Which of the program's kernels they are; none on the CPU, which runs their functions.
    pub fn kernels(&self) -> Option<&'static KernelImage> {
        self.own.image()
    }

    /// The device and the kernels in one line.
    pub fn describe(&self, mode: Option<Mode>) -> Result<String, Error> {
        let kernels = self.kernels().map(|image| format!(", kernels for {}", image.arch)).unwrap_or_default();
        Ok(describe(&self.device, mode)? + &kernels)
    }

    /// Prints the device, and why it is not a GPU.
    pub fn say(&self, mode: Option<Mode>, console: &Console) -> Result<(), Error> {
        say_device(&self.describe(mode)?, self.why_not_cuda.as_ref(), console);
        Ok(())
    }

    /// The options that select the same device and kernels.
    pub fn options(&self, replay: bool) -> String {
        options(self.ordinal, self.kernels(), replay)
    }
}

impl Bare {
    /// Prints the device, and why it is not a GPU.
    pub fn say(&self, console: &Console) -> Result<(), Error> {
        say_device(&describe(&self.device, None)?, self.why_not_cuda.as_ref(), console);
        Ok(())
    }
}

/// The options that select GPU `ordinal` with these kernels; the CPU if there are none.
fn options(ordinal: u32, kernels: Option<&KernelImage>, replay: bool) -> String {
    match kernels {
        Some(image) => format!("--backend cuda --device {ordinal} --kernels {}", image.arch),
        None if replay => "--replay".into(),
        None => "--backend cpu".into(),
    }
}

/// The selected device, with `kernels`.
pub fn choose(
    mut launch: LaunchArgs,
    mode: Option<Mode>,
    kernels: &[&'static str],
) -> Result<Chosen, Failure> {
    if mode.is_some() {
        launch.device.backend = BackendChoice::Cpu;
    }
    let cpu = || Chosen::cpu(mode, kernels);
    let (chosen, why_not_cuda) = select(launch, || Chosen::try_cuda(launch, kernels), cpu)?;
    Ok(Chosen { why_not_cuda, ..chosen })
}

/// The selected device, without kernels.
pub fn choose_bare(device: DeviceArgs) -> Result<Bare, Failure> {
    let cuda = || Device::cuda(device.device.unwrap_or(0));
    let launch = LaunchArgs { device, kernels: None };
    let (device, why_not_cuda) = select(launch, cuda, || Ok(Device::cpu()))?;
    Ok(Bare { device, why_not_cuda })
}

/// Opens the selected device. `auto` selects the GPU if there is a usable one, otherwise the CPU,
/// with the reason. Naming a GPU or its kernels requires a GPU.
fn select<T>(
    LaunchArgs { device, kernels }: LaunchArgs,
    cuda: impl FnOnce() -> Result<T, Error>,
    cpu: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, Option<String>), Failure> {
    let named = [("--device", device.device.is_some()), ("--kernels", kernels.is_some())];
    let named = named.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option);
    match (device.backend, named) {
        (BackendChoice::Cpu, Some(option)) => Err(Failure::usage(format_args!(
            "{option} is for a GPU, but this run is on the CPU; leave out {option}, or use --backend cuda \
             without --replay"
        ))),
        (BackendChoice::Cpu, None) => Ok((cpu()?, None)),
        (BackendChoice::Auto, None) => match cuda() {
            Ok(chosen) => Ok((chosen, None)),
            Err(Error::NoDevice { found, .. }) => Ok((cpu()?, Some(found))),
            Err(error) => Ok((cpu()?, Some(error.to_string()))),
        },
        (BackendChoice::Auto | BackendChoice::Cuda, _) => Ok((cuda().map_err(no_cuda)?, None)),
    }
}

fn say_device(device: &str, why_not_cuda: Option<&String>, console: &Console) {
    console.say(format_args!("  device   {device}"));
    if let Some(why) = why_not_cuda {
        console.say(format_args!("           not on a GPU: {why}; see `warpheap doctor`"));
    }
}

fn no_cuda(error: Error) -> Failure {
    Failure::from(error).with(|message| {
        format!("{message}\n`warpheap doctor` shows what is missing; `--backend cpu` requires no GPU")
    })
}

/// The device in one line.
pub fn describe(device: &Device, mode: Option<Mode>) -> Result<String, Error> {
    let info = device.info()?;
    if device.backend() == Backend::Cpu {
        return Ok(match mode {
            Some(Mode::Replay { .. }) => "CPU, replay: one OS thread, scheduled by the seed".into(),
            _ => {
                let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
                format!("CPU, {workers} workers that run the kernels as warps of {} lanes", info.warp_size)
            }
        });
    }
    let (major, minor) = info.compute_capability.unwrap_or_default();
    Ok(format!("{}, sm_{major}{minor}, {} multiprocessors", info.name, info.multiprocessors))
}

/// Advice after a stress run that the watchdog ended.
pub fn after_a_hang(backend: Backend, replay: bool) -> &'static str {
    match backend {
        Backend::Cuda => {
            "If it was only slow, allow more time with --watchdog. Otherwise try `warpheap stress --replay` with \
             the same seed: it runs on the CPU and reports the lanes that wait."
        }
        _ if replay => {
            "A replay reports lanes that wait for each other, so this one was slow: allow more time with \
             --watchdog, or use fewer --threads."
        }
        _ => {
            "If it was only slow, allow more time with --watchdog, or use fewer --threads. Otherwise run it \
             with --replay and the same seed, which reports the lanes that wait."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;
    use warpheap_harness::build_info;

    #[test]
    fn a_gpu_is_asked_for_with_the_kernels_that_ran() {
        let Ok(images) = build_info::images() else { return };
        for image in images {
            let words = options(1, Some(image), false);
            let line = format!("warpheap stress {words}");
            let Command::Stress(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
                unreachable!()
            };
            let device = args.launch.device;
            assert_eq!((device.backend, device.device), (BackendChoice::Cuda, Some(1)));
            let kernels = args.launch.kernels.unwrap_or_else(|| panic!("no kernels in {words}"));
            assert_eq!(build_info::image_for(Some(kernels.capability())), Ok(image));
        }
        assert_eq!(
            (options(0, None, true), options(0, None, false)),
            ("--replay".into(), "--backend cpu".into())
        );
    }

    #[test]
    fn the_cpu_names_no_kernels() {
        let chosen = Chosen::cpu(None, &[]).unwrap_or_else(|failure| panic!("{}", failure.message));
        assert!(chosen.kernels().is_none());
        assert_eq!(chosen.describe(None).unwrap(), describe(&chosen.device, None).unwrap());
    }

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
