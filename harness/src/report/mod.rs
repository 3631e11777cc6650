//! Reports of a run: results with their provenance as JSON, and numbers and tables for people.

pub mod file;
pub mod heap_map;
pub mod human;
pub mod provenance;
pub mod table;
pub mod trace;
