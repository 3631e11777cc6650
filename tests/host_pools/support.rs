//! The devices under test: see the support of the tests of the driver.

pub use crate::driver_support::{devices, is_cpu, module};
