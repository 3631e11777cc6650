//! A self-test: a kernel of which every result is checked.

use super::super::status::Status;
use serde::Serialize;
use std::time::Duration;
use warpheap::{Backend, Device, Error, LaunchConfig, Module, Watchdog};
use warpheap_device::units::WARP_SIZE;
use warpheap_harness::kernels::selftest::{self_test, votes};

/// Several blocks on every SM of a small GPU.
const THREADS: u32 = 1 << 14;
const BLOCK: u32 = 256;
/// A thousand times the expected duration.
const LIMIT: Duration = Duration::from_secs(60);

/// Result of the self-test.
#[derive(Clone, Debug, Serialize)]
pub struct SelfTest {
    /// Whether the kernel ran and all its results are correct.
    pub passed: bool,
    /// GPU threads.
    pub threads: u32,
    /// The error, if any.
    pub error: Option<String>,
}

/// Runs the kernel: coordinates, a ballot and an atomic sum.
pub fn run(device: &Device, module: &Module) -> SelfTest {
    let advice = match device.backend() {
        Backend::Cuda => "`nvidia-smi` shows whether another process uses that GPU.",
        _ => "If other processes use the CPU, run it again without them.",
    };
    let what = format!("the self-test on {device}");
    let watchdog = Watchdog::start(LIMIT, what, advice, Status::Hung as i32);
    let error = match results(device, module) {
        Ok(results) => results.wrong(),
        Err(error) => Some(error.to_string()),
    };
    watchdog.disarm();
    SelfTest { passed: error.is_none(), threads: THREADS, error }
}

struct Results {
    indices: Vec<u32>,
    ballots: Vec<u32>,
    sum: u64,
}

fn results(device: &Device, module: &Module) -> Result<Results, Error> {
    let stream = device.stream()?;
    let indices = device.zeroed::<u32>(THREADS as usize)?;
    let ballots = device.zeroed::<u32>(THREADS as usize)?;
    let sum = device.zeroed::<u64>(1)?;
    let grid = LaunchConfig::linear(THREADS, BLOCK);
    let args = (indices.slice(), ballots.slice(), sum.ptr());
    // SAFETY: the buffers live until the stream is synchronised, and blocks consist of full warps.
    unsafe { stream.launch(module, self_test, &grid, args) }?;
    stream.synchronize()?;
    let sum = sum.copy_to_vec()?.into_iter().sum();
    Ok(Results { indices: indices.copy_to_vec()?, ballots: ballots.copy_to_vec()?, sum })
}

impl Results {
    /// The first incorrect result.
    fn wrong(&self) -> Option<String> {
        let threads = || 0..THREADS;
        if let Some((i, found)) = threads().zip(&self.indices).find(|(i, found)| i != *found) {
            return Some(format!("thread {i} has the index {found}"));
        }
        let ballot = |i: u32| {
            (0..WARP_SIZE).fold(0, |all, lane| all | u32::from(votes(i - i % WARP_SIZE + lane)) << lane)
        };
        if let Some((i, found)) = threads().zip(&self.ballots).find(|(i, found)| ballot(*i) != **found) {
            return Some(format!("thread {i} has the ballot {found:#010x} instead of {:#010x}", ballot(i)));
        }
        let sum: u64 = threads().map(u64::from).sum();
        (self.sum != sum).then(|| format!("the atomic sum is {} instead of {sum}", self.sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_passes_and_a_wrong_result_is_named() {
        let device = Device::cpu();
        let module = device.native_module().unwrap();
        let test = run(&device, &module);
        assert!(test.passed, "{test:?}");
        let mut results = results(&device, &module).unwrap();
        results.sum += 1;
        assert!(results.wrong().unwrap().contains("sum"));
        results.ballots[33] ^= 1;
        assert!(results.wrong().unwrap().contains("thread 33 has the ballot"));
        results.indices[5] = 0;
        assert!(results.wrong().unwrap().contains("thread 5 has the index 0"));
    }
}
