//! Drawings of results and of maps: pages, charts, pictures, and traces for viewers.

pub mod chart;
pub mod html;
pub mod map;
pub mod palette;
pub mod trace;
