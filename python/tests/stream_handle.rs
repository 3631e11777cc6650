//! The rule for raw handles of CUDA's streams, which pools on the CPU do not apply.

#[path = "../src/stream_handle.rs"]
mod stream_handle;

use stream_handle::canonical;

#[test]
fn both_handles_of_the_default_stream_are_one() {
    assert_eq!((canonical(0), canonical(1)), (Ok(0), Ok(0)));
    assert_eq!((canonical(3), canonical(u64::MAX)), (Ok(3), Ok(u64::MAX)));
}

#[test]
fn the_stream_of_each_thread_is_rejected() {
    let why = canonical(2).expect_err("it is another stream in each thread");
    assert!(why.contains("cudaStreamPerThread") && why.contains("pass 0"), "{why}");
}
