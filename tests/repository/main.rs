//! The repository: its text, its documentation, its scripts and its dependencies.
#![cfg(not(loom))]

mod comments;
mod dependencies;
mod docs;
mod files;
mod layers;
mod machines;
mod modules;
mod pages;
mod points;
mod results;
mod scripts;
mod sizes;
mod words;
