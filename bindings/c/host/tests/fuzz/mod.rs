//! Random sequences of calls, with arguments that are valid, null, misaligned, foreign, freed or
//! huge: each returns a documented status, failures have a text, and live blocks do not overlap.
//!
//! `calls` has the calls, `make` makes them, and `state` remembers what they returned.
//! `WARPHEAP_FUZZ_CALLS` and `WARPHEAP_FUZZ_SEED` set the number of sequences and what they are;
//! `scripts/fuzz.sh` runs many.

mod calls;
mod make;
mod state;

use calls::{Call, call};
use proptest::collection::vec;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use state::State;

fn variable(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => default,
    }
}

#[test]
fn no_sequence_of_calls_breaks_a_promise() {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&variable("WARPHEAP_FUZZ_SEED", 1).to_le_bytes());
    let cases = u32::try_from(variable("WARPHEAP_FUZZ_CALLS", 150)).expect("fewer than 2^32 cases");
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let outcome = TestRunner::new_with_rng(config, rng).run(&vec(call(), 1..24), |calls: Vec<Call>| {
        let mut state = State::default();
        calls.iter().for_each(|call| call.make(&mut state));
        state.end();
        Ok(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, calls)) => panic!("{why}: {calls:?}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}
