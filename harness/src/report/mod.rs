//! Results of a run with their provenance as JSON, what changed since older ones, and numbers, maps
//! and tables for people.

pub mod compare;
pub mod file;
pub mod heap_map;
pub mod human;
pub mod results;
pub mod table;
