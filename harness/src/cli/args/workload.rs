//! What the threads of a stress do.

use clap::{Args, ValueEnum};
use warpheap_harness::stress::{SizeMix, Workload};

/// What the threads do, and which sizes they ask for.
#[derive(Clone, Copy, Debug, Args)]
pub struct WorkloadArgs {
    /// What the threads do.
    ///
    /// Default: churn. The others are for allocators that take blocks back one by one.
    #[arg(long, value_enum, default_value_t = WorkloadChoice::Churn, hide_default_value = true)]
    pub workload: WorkloadChoice,
    /// How sizes are spread over the range of --size.
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
    /// Free what other warps allocated while they run, on any stream
    Exchange,
    /// Every second stream allocates, and the others free that at the same time
    Pipeline,
    /// A pool that is much too small: all are refused, all is freed, and it must give as much again
    Storm,
}

/// How sizes are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MixChoice {
    /// Each as often as any other
    Uniform,
    /// Powers of two alone
    Powers,
    /// Fifteen of sixteen from the lowest sixteenth of the range
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
