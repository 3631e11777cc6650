//! Every call of the driver's fails in turn, once or until the driver is well again: the buffer keeps its size and what it holds, goes on
//! growing and shrinking, and leaves nothing with the driver.

use super::*;
use crate::driver::flawed::{self, Call, Faults, Which};

const MIB: u64 = 1 << 20;
const BROKEN: u32 = 999;

struct Run {
    faults: Arc<Faults>,
    which: Which,
}

impl Run {
    /// Calls until it goes well; the driver is well again after two failures.
    fn must<T>(&self, mut call: impl FnMut() -> Result<T>) -> T {
        for _ in 0..3 {
            match call() {
                Ok(done) => return done,
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("was told to fail"), "{:?}: {error}", self.which);
                    if self.faults.failed().len() > 1 {
                        self.faults.tell(Which::Never, 0);
                    }
                }
            }
        }
        panic!("{:?}: it goes on failing: {:?}", self.which, self.faults.failed());
    }
}

/// How many calls there are, and what was left with the driver at the end.
fn use_it(which: Which) -> (Vec<Call>, Vec<Call>) {
    let (device, faults) = flawed::device(64 * MIB);
    faults.tell(which, BROKEN);
    let run = Run { faults: faults.clone(), which };
    let mut buffer = run.must(|| GrowableBuffer::reserve(&device, 32 * MIB));
    let mut holds = None;
    for mebibytes in [4, 8, 4, 20, 0, 6, 2, 16] {
        let (before, asked) = (buffer.size(), mebibytes * MIB);
        if asked > before {
            run.must(|| {
                let grown = buffer.grow_to(asked);
                assert_eq!(buffer.size(), if grown.is_ok() { asked } else { before }, "{which:?}");
                grown
            });
        } else {
            let size = run.must(|| {
                let shrunk = buffer.shrink_to(asked);
                assert!((asked..=before).contains(&buffer.size()), "{which:?}");
                shrunk
            });
            assert_eq!(size, buffer.size());
        }
        assert_eq!(device.memory_in_use(), (buffer.size(), 1), "{which:?}");
        holds = holds.filter(|_| buffer.size() > 0);
        if let Some(word) = holds {
            let mut read = [0_u32; 2];
            run.must(|| buffer.read(0, &mut read));
            assert_eq!(read, [word, 0x0505_0505], "{which:?}, at {mebibytes} MiB");
        } else if buffer.size() > 0 {
            run.must(|| buffer.write(0, &[mebibytes as u32]));
            run.must(|| buffer.fill_part(4, 4, 5));
            holds = Some(mebibytes as u32);
        }
        let pages: u64 = faults.held().iter().filter(|(call, _)| *call == Call::Create).map(|(_, n)| n).sum();
        assert_eq!(pages, buffer.size(), "{which:?}: memory that is not the buffer's");
    }
    if let Which::From(_) = which {
        faults.tell(Which::Never, 0);
    }
    drop(buffer);
    assert_eq!(device.memory_in_use(), (0, 0), "{which:?}");
    (faults.all_calls(), faults.held().into_iter().map(|(call, _)| call).collect())
}

#[test]
fn each_call_of_the_driver_fails_once() {
    let (calls, held) = use_it(Which::Never);
    assert!(calls.len() > 40 && held.is_empty(), "{calls:?}, {held:?}");
    for nth in 1..=calls.len() {
        let (these, held) = use_it(Which::Nth(nth));
        assert_eq!(these[nth - 1], calls[nth - 1]);
        assert!(held.is_empty(), "call {nth}, {:?}, leaves {held:?}", calls[nth - 1]);
    }
}

#[test]
fn from_one_call_on_all_fail_until_the_driver_is_well_again() {
    let (calls, _) = use_it(Which::Never);
    for first in 1..=calls.len() {
        let (_, held) = use_it(Which::From(first));
        assert!(held.is_empty(), "from call {first}, {:?}: {held:?}", calls[first - 1]);
    }
}
