//! Options whose values are those of a type of the harness, and their descriptions.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::error::Error;
use std::str::FromStr;
use warpheap_harness::stress::AllocatorKind;

/// The names of all values and their descriptions.
pub type Choices = [(&'static str, &'static str)];

pub static ALLOCATORS: &Choices = &[
    ("bump", "The arena: any size, freed all at once"),
    ("freelist", "The lock-free pool of blocks of one size"),
    ("heap", "The heap: any size, freed by any thread"),
    ("all", "All of them"),
];
pub static PLANTS: &Choices = &[
    ("overlap", "The allocator returns memory that is in use"),
    ("double-free", "A thread frees a block twice (not with bump)"),
    ("lost-block", "A thread leaks a block"),
    ("torn-write", "A thread writes past the end of its block"),
];
pub static WORKLOADS: &Choices = &[
    ("churn", "Allocate and free; blocks pass to other threads and streams between kernels"),
    ("exchange", "Free blocks of other running warps, of any stream"),
    ("pipeline", "Every second stream allocates, and the others free those blocks concurrently"),
    ("storm", "Exhaust a small pool, free everything, and check that as much can be allocated again"),
];
pub static MIXES: &Choices = &[
    ("uniform", "Every size equally often"),
    ("powers", "Powers of two only"),
    ("mostly-small", "15 of 16 sizes from the lowest sixteenth of the range"),
];

/// The selected allocators.
#[derive(Clone, Debug)]
pub struct Allocators(pub Vec<AllocatorKind>);

impl FromStr for Allocators {
    type Err = <AllocatorKind as FromStr>::Err;

    fn from_str(name: &str) -> Result<Allocators, Self::Err> {
        if name == "all" {
            return Ok(Allocators(AllocatorKind::ALL.to_vec()));
        }
        name.parse().map(|kind| Allocators(vec![kind]))
    }
}

/// Parses one of the values.
pub fn one_of<T>(choices: &'static Choices) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    let values = choices.iter().map(|(name, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(values).try_map(|name| name.parse())
}

/// The description of a value: `name: what it is`.
pub fn describe(choices: &Choices, name: &str) -> String {
    let found = choices.iter().find(|(known, _)| *known == name);
    found.map_or_else(|| name.into(), |(name, help)| format!("{name}: {help}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpheap_harness::stress::{Plant, SizeMix, Workload};

    #[test]
    fn the_choices_are_the_values_of_the_harness() {
        let names = |choices: &Choices| choices.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!(names(PLANTS), Plant::ALL.map(|value| value.to_string()));
        assert_eq!(names(WORKLOADS), Workload::ALL.map(|value| value.to_string()));
        assert_eq!(names(MIXES), SizeMix::ALL.map(|value| value.to_string()));
        assert_eq!(names(ALLOCATORS)[..3], AllocatorKind::ALL.map(AllocatorKind::name));
    }
}
