//! The repository: its text, its documentation, its scripts and its dependencies.
#![cfg(not(loom))]

mod dependencies;
mod docs;
mod files;
mod layers;
mod modules;
mod pages;
mod points;
mod results;
mod words;
