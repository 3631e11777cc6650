//! Drawings of results and of maps: pages, charts, pictures, and traces for viewers.
//!
//! A `page` has the sections of `bench` and `runs`. `chart` draws their charts and `map` pictures
//! of heaps, both by `svg`. `trace` and `snapshot` write logs for viewers.

mod bench;
mod chart;
mod map;
mod page;
mod runs;
mod section;
mod snapshot;
mod svg;
#[cfg(test)]
mod tests;
mod trace;

pub use chart::Card;
pub use map::picture_of_maps;
pub use page::{charts, page};
pub use snapshot::pytorch;
pub use trace::{check_times, perfetto, perfetto_of_maps};
