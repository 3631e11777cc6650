//! Reports of a run: results with their provenance as JSON, pages with charts, and numbers and
//! tables for people.

pub mod chart;
pub mod compare;
pub mod file;
pub mod heap_map;
pub mod html;
pub mod human;
pub mod palette;
pub mod provenance;
pub mod results;
pub mod table;
pub mod trace;
