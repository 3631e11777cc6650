//! The handle by which a pool knows a stream of CUDA.

/// `CU_STREAM_LEGACY`, another handle of the default stream.
const LEGACY: u64 = 1;
/// `CU_STREAM_PER_THREAD`: another stream in each thread.
const PER_THREAD: u64 = 2;

/// The handle of a stream: one for both handles of the default stream.
///
/// Fails for the handle that is another stream in each thread: a pool would take several streams
/// for one.
pub fn canonical(raw: u64) -> Result<u64, &'static str> {
    match raw {
        LEGACY => Ok(0),
        PER_THREAD => Err("the stream is cudaStreamPerThread, another stream in each thread; \
                           pass 0 or a stream of your own"),
        raw => Ok(raw),
    }
}
