"""Trials of ``Tensor.record_stream`` on a GPU: ``record_stream_trials.py ALLOCATOR [--forget]``.

A stream reads a tensor late, while the main stream frees it and fills a new one of its size.
``ALLOCATOR`` is ``own``, PyTorch's, or ``warpheap``. With ``--forget``, the stream is not recorded.
Prints how many copies were wrong, and how often the main stream waited for the other. Fails if
one was wrong, or with ``--forget`` if none was: then the trials show nothing.
"""

import json
import sys

import torch

TRIALS = 50
WORDS = 1 << 22
#: Some tens of milliseconds.
CYCLES = 50_000_000


def trial(record):
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    tensor = torch.full((WORDS,), 1, device="cuda", dtype=torch.int32)
    copy = torch.zeros_like(tensor)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        torch.cuda._sleep(CYCLES)
        copy.copy_(tensor)
    if record:
        tensor.record_stream(side)
    del tensor
    other = torch.full((WORDS,), 2, device="cuda", dtype=torch.int32)
    main.synchronize()
    waited = side.query()
    side.synchronize()
    assert bool((other == 2).all())
    return not bool((copy == 1).all()), waited


def main(allocator, *options):
    if allocator == "warpheap":
        import warpheap.torch

        warpheap.torch.use_pool()
    is_recorded = "--forget" not in options
    results = [trial(is_recorded) for _ in range(TRIALS)]
    wrong, waited = (sum(column) for column in zip(*results))
    print(json.dumps({"trials": TRIALS, "wrong": wrong, "waited": waited}))
    has_failed = wrong > 0 if is_recorded else wrong == 0
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
