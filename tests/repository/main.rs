//! The repository: its text, its documentation, its scripts and its dependencies.
#![cfg(not(loom))]

mod dependencies;
mod docs;
mod files;
mod machines;
mod pages;
mod results;
mod scripts;
