//! The options of a stress workload. Their doc comments are the text of `--help`.

use clap::{Args, ValueEnum};
use warpheap_harness::stress::{SizeMix, Workload};

/// What the threads do, and the sizes that they allocate.
#[derive(Clone, Copy, Debug, Args)]
pub struct WorkloadArgs {
    /// What the threads do.
    ///
    /// Default: churn. The others need an allocator that frees single blocks.
    #[arg(long, value_enum, default_value_t = WorkloadChoice::Churn, hide_default_value = true)]
    pub workload: WorkloadChoice,
    /// Distribution of sizes over the range of --size.
    ///
    /// Default: uniform.
    #[arg(long, value_enum, default_value_t = MixChoice::Uniform, hide_default_value = true)]
    pub mix: MixChoice,
}

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WorkloadChoice {
    /// Allocate and free; blocks pass to other threads and streams between kernels
    Churn,
    /// Free blocks of other running warps, of any stream
    Exchange,
    /// Every second stream allocates, and the others free those blocks concurrently
    Pipeline,
    /// Exhaust a small pool, free everything, and check that as much can be allocated again
    Storm,
}

/// Distribution of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MixChoice {
    /// Every size equally often
    Uniform,
    /// Powers of two only
    Powers,
    /// 15 of 16 sizes from the lowest sixteenth of the range
    MostlySmall,
}

impl From<WorkloadChoice> for Workload {
    fn from(choice: WorkloadChoice) -> Workload {
        match choice {
            WorkloadChoice::Churn => Workload::Churn,
            WorkloadChoice::Exchange => Workload::Exchange,
            WorkloadChoice::Pipeline => Workload::Pipeline,
            WorkloadChoice::Storm => Workload::Storm,
        }
    }
}

impl From<MixChoice> for SizeMix {
    fn from(choice: MixChoice) -> SizeMix {
        match choice {
            MixChoice::Uniform => SizeMix::Uniform,
            MixChoice::Powers => SizeMix::Powers,
            MixChoice::MostlySmall => SizeMix::MostlySmall,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choices_are_the_harness_own() {
        let name = |value: Option<clap::builder::PossibleValue>| value.unwrap().get_name().to_owned();
        let workloads = WorkloadChoice::value_variants();
        let named = workloads.iter().map(|one| (name(one.to_possible_value()), Workload::from(*one)));
        assert!(named.into_iter().all(|(name, workload)| name == workload.to_string()));
        let mixes = MixChoice::value_variants();
        let named = mixes.iter().map(|one| (name(one.to_possible_value()), SizeMix::from(*one)));
        assert!(named.into_iter().all(|(name, mix)| name == mix.to_string()));
        assert_eq!((workloads.len(), mixes.len()), (Workload::ALL.len(), SizeMix::ALL.len()));
    }
}
