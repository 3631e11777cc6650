//! The options of a run: its device, its results and its time limit. Their doc comments are the
//! text of `--help`.

use super::super::parse::{self, Target};
use clap::{Args, ValueEnum};
use std::time::Duration;

/// The backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendChoice {
    /// A GPU if there is a usable one, otherwise the CPU
    Auto,
    /// An NVIDIA GPU, through its driver
    Cuda,
    /// This machine's CPU, which runs the same kernel functions
    Cpu,
}

/// The device of a run.
#[derive(Clone, Copy, Debug, Args)]
pub struct DeviceArgs {
    /// The backend.
    ///
    /// Default: auto. The first lines of the output name the device.
    #[arg(long, value_enum, default_value_t = BackendChoice::Auto, hide_default_value = true)]
    pub backend: BackendChoice,
    /// Ordinal of the GPU; `warpheap doctor` lists them. Requires a GPU.
    ///
    /// Default: 0, the driver's first.
    #[arg(long, value_name = "N", value_parser = parse::ordinal)]
    pub device: Option<u32>,
}

/// The device and the kernels of a run that launches kernels.
#[derive(Clone, Copy, Debug, Args)]
pub struct LaunchArgs {
    #[command(flatten)]
    pub device: DeviceArgs,
    /// The set of kernels that the GPU runs. Requires a GPU.
    ///
    /// Default: the newest set that the GPU supports.
    #[arg(long, value_enum, value_name = "ARCH")]
    pub kernels: Option<KernelsChoice>,
}

/// The options of all commands that run kernels or pools.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Write the results, and how to reproduce them, to this file; `-` is standard output.
    ///
    /// Default: none.
    #[arg(long, value_name = "FILE", value_parser = parse::target())]
    pub json: Option<Target>,
    /// Exit with status 4 if a step (a round, a figure, a pool) takes longer than this many
    /// seconds; 0 disables the limit. A hung kernel cannot be cancelled, so such a run writes no
    /// results.
    ///
    /// Default: 300.
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds_or_zero, default_value = "300", hide_default_value = true)]
    pub watchdog: Duration,
}

/// The architectures that this program has kernels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KernelsChoice {
    /// Any GPU since Volta
    #[value(name = "sm_70")]
    Sm70,
    /// Any GPU since Ampere
    #[value(name = "sm_80")]
    Sm80,
}

impl KernelsChoice {
    /// A compute capability that runs these kernels and none newer.
    pub fn capability(self) -> (u32, u32) {
        match self {
            KernelsChoice::Sm70 => (7, 0),
            KernelsChoice::Sm80 => (8, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpheap_harness::build_info;

    #[test]
    fn there_is_a_choice_for_each_image() {
        let Ok(images) = build_info::images() else { return };
        assert_eq!(KernelsChoice::value_variants().len(), images.len());
        for (choice, image) in KernelsChoice::value_variants().iter().zip(images) {
            assert_eq!(choice.to_possible_value().unwrap().get_name(), image.arch);
            assert_eq!(build_info::image_for(Some(choice.capability())), Ok(image));
        }
    }
}
