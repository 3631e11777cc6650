//! A buffer that grows and shrinks: it keeps its size and its contents, whichever call fails.

use crate::driver::GrowableBuffer;
use crate::driver::fault_injection::{self, Call, Run};

const MIB: u64 = 1 << 20;

/// Bytes that the driver holds from calls of this kind.
fn held(run: &Run, kind: Call) -> u64 {
    run.faults.held().iter().filter(|(call, _)| *call == kind).map(|(_, bytes)| bytes).sum()
}

fn scenario(run: &mut Run) {
    let device = &run.device;
    let mut buffer = run.must(|| GrowableBuffer::reserve(device, 32 * MIB)).unwrap();
    let mut holds = None;
    for mebibytes in [4, 8, 4, 20, 0, 6, 2, 16] {
        let (before, requested) = (buffer.size(), mebibytes * MIB);
        let size = run.must(|| {
            if requested <= before {
                let shrunk = buffer.shrink_to(requested);
                assert!((requested..=before).contains(&buffer.size()), "{run}");
                return shrunk;
            }
            let grown = buffer.grow_to(requested);
            assert_eq!(buffer.size(), if grown.is_ok() { requested } else { before }, "{run}");
            // If several calls fail, the next growth or shrink frees the rest.
            if run.faults.failed().len() <= 1 {
                let bytes = [Call::Create, Call::Map].map(|kind| held(run, kind));
                assert_eq!(bytes, [buffer.size(); 2], "{run}");
            }
            grown
        });
        assert_eq!(size, Some(buffer.size()), "{run}");
        assert_eq!(device.memory_in_use(), (buffer.size(), 1), "{run}");
        holds = holds.filter(|_| buffer.size() > 0);
        if let Some(word) = holds {
            let mut read = [0_u32; 2];
            run.must(|| buffer.read(0, &mut read)).unwrap();
            assert_eq!(read, [word, 0x0505_0505], "{run}, at {mebibytes} MiB");
        } else if buffer.size() > 0 {
            run.must(|| buffer.write(0, &[mebibytes as u32])).unwrap();
            run.must(|| buffer.fill_part(4, 4, 5)).unwrap();
            holds = Some(mebibytes as u32);
        }
        assert_eq!(held(run, Call::Create), buffer.size(), "{run}: memory that is not the buffer's");
    }
    // A buffer that is dropped while the driver fails cannot free its memory.
    run.recover();
}

#[test]
fn each_driver_call_fails_once() {
    let calls = fault_injection::each_call_fails_once("a growable buffer", scenario);
    assert!(calls.len() > 40, "{calls:?}");
}

#[test]
fn all_driver_calls_fail_until_recovery() {
    fault_injection::all_calls_fail_for_a_while("a growable buffer", scenario);
}
