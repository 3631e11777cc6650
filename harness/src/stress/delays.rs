//! Delays of threads at named points of the allocator: they make races between steps likelier.

use super::kinds::AllocatorKind;
use crate::{Error, Name, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use warpheap::driver::Module;
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::bump::Bump;
use warpheap_device::freelist::FreeList;
use warpheap_device::heap::Heap;

/// A thread that passes a point is delayed with a probability of 1 in this number.
///
/// On the CPU, the default churn of a heap makes 1.4 million pairs of an allocation and a free and
/// 9,100 delays, so 6.5 passes per pair; a free list makes 1.1. Other lanes run meanwhile: the run
/// takes no longer than without delays.
const ONE_IN: u32 = 1024;

/// Where and how often threads are delayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Delays {
    /// Names of points (`heap/claim`), first parts of names (`heap`), or `all`.
    pub points: Vec<String>,
    /// A thread that passes a point is delayed with a probability of 1 in this number. Default:
    /// 1024.
    pub one_in: u32,
}

impl Delays {
    /// Delays at these points: names, first parts of names, or `all`.
    pub fn at<N: Into<String>>(points: impl IntoIterator<Item = N>) -> Delays {
        Delays { points: points.into_iter().map(Into::into).collect(), one_in: ONE_IN }
    }

    /// Sets [`one_in`](Self::one_in).
    #[must_use]
    pub fn one_in(self, one_in: u32) -> Delays {
        Delays { one_in, ..self }
    }

    /// Selects from the points of the allocator `name`. Each of `self.points` must select one.
    pub(super) fn select(&self, name: &str, of: Points) -> Result<DelayPlan> {
        let what = || format!("a {name} with delays");
        if !cfg!(feature = "delays") {
            let advice = "this program was built without delays; build it with the feature `delays` of warpheap-harness";
            return Err(Error::invalid_stress(what(), advice));
        }
        if self.points.is_empty() || self.one_in == 0 {
            return Err(Error::invalid_stress(
                what(),
                "name at least one point, and delay at least one thread in 2^32",
            ));
        }
        let all = || of.iter().copied().flatten().copied();
        if let Some(unknown) = self.points.iter().find(|given| !all().any(|point| is_meant(given, point))) {
            let points = all().collect::<Vec<_>>().join(", ");
            let found = if points.is_empty() { "it lists no points" } else { "it has these points:" };
            return Err(Error::invalid_stress(
                format!("a {name} with delays at `{unknown}`"),
                format!("{found} {points}"),
            ));
        }
        let points = all().filter(|point| self.points.iter().any(|given| is_meant(given, point))).collect();
        Ok(DelayPlan { points, one_in: self.one_in })
    }
}

/// The points of an allocator: [`DeviceAlloc::POINTS`].
pub(super) type Points = &'static [&'static [&'static str]];

/// Whether `given` is the name of the point, its first part, or `all`.
fn is_meant(given: &str, point: &str) -> bool {
    let rest = point.strip_prefix(given);
    given == "all" || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl AllocatorKind {
    /// The names of the points at which [`Delays`] can delay a thread.
    pub fn points(self) -> impl Iterator<Item = &'static str> {
        let lists = match self {
            AllocatorKind::Bump => Bump::POINTS,
            AllocatorKind::FreeList => FreeList::POINTS,
            AllocatorKind::Heap => Heap::POINTS,
        };
        lists.iter().copied().flatten().copied()
    }

    /// Whether one of the points has this name, this first part of the name, or `given` is `all`.
    pub fn has_point(self, given: &str) -> bool {
        self.points().any(|point| is_meant(given, point))
    }
}

/// The selected points of a run.
#[derive(Clone, Debug)]
pub(super) struct DelayPlan {
    points: Vec<&'static str>,
    one_in: u32,
}

/// The delays of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DelayReport {
    /// A thread that passed a point was delayed with a probability of 1 in this number.
    pub one_in: u32,
    /// All delays that took place. A run with 0 says no more than a run without delays.
    pub total: u64,
    /// The delays at each selected point.
    pub points: BTreeMap<Name, u64>,
}

/// Delays that are switched on.
pub(super) struct RunDelays {
    plan: DelayPlan,
    #[cfg(feature = "delays")]
    delays: warpheap::driver::ActiveDelays,
}

impl RunDelays {
    /// Switches the delays on in the kernels of the module.
    #[cfg_attr(not(feature = "delays"), expect(unused_variables))]
    pub fn start(module: &Module, seed: u64, plan: &DelayPlan) -> Result<RunDelays> {
        Ok(RunDelays {
            plan: plan.clone(),
            #[cfg(feature = "delays")]
            delays: module.delay(seed, plan.one_in, &plan.points)?,
        })
    }

    /// The delays that took place.
    pub fn report(&self) -> Result<DelayReport> {
        #[cfg(feature = "delays")]
        let counts = self.delays.counts()?;
        #[cfg(not(feature = "delays"))]
        let counts: Vec<_> = self.plan.points.iter().map(|name| (*name, 0)).collect();
        let points = counts.into_iter().map(|(name, count)| (name.into(), count)).collect::<BTreeMap<_, _>>();
        Ok(DelayReport { one_in: self.plan.one_in, total: points.values().sum(), points })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_point_is_selected_by_its_name_or_its_first_part() {
        for (given, point, expected) in [
            ("heap", "heap/claim", true),
            ("heap/claim", "heap/claim", true),
            ("all", "heap/claim", true),
            ("heap/cl", "heap/claim", false),
            ("hea", "heap/claim", false),
            ("", "heap/claim", false),
            ("heap/claim/more", "heap/claim", false),
        ] {
            assert_eq!(is_meant(given, point), expected, "{given} {point}");
        }
    }

    #[test]
    fn names_of_points_are_unique() {
        let mut all: Vec<_> = AllocatorKind::ALL.into_iter().flat_map(AllocatorKind::points).collect();
        let names = BTreeSet::from_iter(all.iter().copied());
        assert_eq!(names.len(), all.len(), "{all:?}");
        all.retain(|name| {
            name.split_once('/').is_none_or(|(structure, point)| structure.is_empty() || point.is_empty())
        });
        assert!(all.is_empty(), "{all:?}");
    }
}
