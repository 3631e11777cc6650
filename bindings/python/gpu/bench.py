"""Figures of the Python package on a GPU, as JSON: ``python3 bench.py numba|cupy|torch``.

``numba``: kernels that allocate, store and free, with warpheap and with CUDA's own malloc. ``cupy``
and ``torch``: 100,000 random allocations from ``CachingPool`` and from the library's own pool.
``errors`` counts the values that were overwritten, in a pass that is not timed.

The exit status is 1 if an allocation failed, a block stayed live, or a value was overwritten.
"""

import json
import random
import sys
import time

ALLOCATIONS = 100_000
ROUNDS = 10


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def numba_pairs():
    import numpy as np
    import warpheap
    from cuda.bindings import driver
    from numba import cuda
    from warpheap.numba import as_array, free, malloc

    # CUDA's own allocator has the same functions without a heap.
    cuda_malloc = cuda.declare_device("malloc", "int64(int64)", abi="c")
    cuda_free = cuda.declare_device("free", "int32(int64)", abi="c")
    threads, block = 1 << 20, 256

    @cuda.jit
    def pairs(heap, rounds, failures):
        i = cuda.grid(1)
        for turn in range(rounds):
            address = malloc(heap, 16)
            if address == 0:
                cuda.atomic.add(failures, 0, 1)
            else:
                as_array(address, 2, np.int64)[0] = i + turn
                free(heap, address)

    @cuda.jit
    def cuda_pairs(rounds, failures):
        i = cuda.grid(1)
        for turn in range(rounds):
            address = cuda_malloc(16)
            if address == 0:
                cuda.atomic.add(failures, 1, 1)
            else:
                as_array(address, 2, np.int64)[0] = i + turn
                cuda_free(address)

    cuda.current_context()
    # The default, 8 MiB, is too small for a block of each thread.
    (status,) = driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 30)
    assert status == driver.CUresult.CUDA_SUCCESS, status
    warpheap_heap = warpheap.Heap(8 << 30)
    failures = cuda.to_device(np.zeros(2, np.int64))

    def timed(launch, rounds):
        times = []
        for i in range(rounds + 2):
            begin, end = cuda.event(), cuda.event()
            begin.record()
            launch()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3)
        return median(times[2:])

    grid = threads // block
    own = timed(lambda: pairs[grid, block](warpheap_heap.handle, 8, failures), ROUNDS)
    theirs = timed(lambda: cuda_pairs[grid, block](1, failures), 3)
    failed, cuda_failed = failures.copy_to_host().tolist()
    live = warpheap_heap.stats()["live_blocks"]
    return {
        "threads": threads,
        "warpheap_8_pairs_us": own,
        "cuda_malloc_1_pair_us": theirs,
        "times_as_fast_per_pair": theirs * 8 / own,
        "failed_allocations": failed,
        "cuda_malloc_failed_allocations": cuda_failed,
        "live_blocks": live,
    }


def drop_one(rng, live):
    """Removes one of the live blocks, at random or if there are 64. Returns it, or ``None``."""
    if len(live) < 64 and not (live and rng.random() < 0.5):
        return None
    place = rng.randrange(len(live))
    live[place], live[-1] = live[-1], live[place]
    return live.pop()


def size(rng):
    """Up to 64 MiB."""
    return int(2 ** rng.uniform(0, 26))


def churn(allocate):
    """Allocates and frees at random. Returns the time in seconds."""
    rng, live = random.Random(7), []
    begin = time.perf_counter()
    for _ in range(ALLOCATIONS):
        drop_one(rng, live)
        live.append(allocate(size(rng)))
    live.clear()
    return time.perf_counter() - begin


def errors(allocate):
    """As ``churn``, with contents. Returns the number of arrays that were overwritten.

    Every byte of each array is written, and every 20th array is read before it is freed.
    """
    rng, live = random.Random(7), []

    def is_wrong(entry):
        i, array = entry
        return i % 20 == 0 and not bool((array == i % 251).all())

    wrong = 0
    for i in range(ALLOCATIONS):
        if dropped := drop_one(rng, live):
            wrong += is_wrong(dropped)
        dropped = None
        array = allocate(size(rng))
        array[:] = i % 251
        live.append((i, array))
    return wrong + sum(is_wrong(entry) for entry in live)


def cupy_arrays():
    import cupy
    import warpheap
    import warpheap.cupy

    def allocate(nbytes):
        return cupy.empty(nbytes, cupy.uint8)

    pool = warpheap.CachingPool(warpheap.Device.cuda())
    own, theirs = [], []
    for _ in range(ROUNDS):
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
        theirs.append(churn(allocate))
        with warpheap.cupy.using_pool(pool):
            own.append(churn(allocate))
    with warpheap.cupy.using_pool(pool):
        wrong = errors(allocate)
    return compared(own, theirs, wrong, pool.stats()["live_blocks"])


def torch_tensors():
    """One run of one allocator: PyTorch can change it only before the first tensor."""
    import torch
    import warpheap
    import warpheap.torch

    if sys.argv[2] == "warpheap":
        warpheap.torch.use_pool(warpheap.CachingPool(warpheap.Device.cuda()))

    def allocate(nbytes):
        return torch.empty(nbytes, dtype=torch.uint8, device="cuda")

    times = [churn(allocate) for _ in range(ROUNDS + 1)][1:]
    wrong = errors(allocate)
    live = warpheap.torch.pool().stats()["live_blocks"] if sys.argv[2] == "warpheap" else 0
    median_s = median(times)
    return {"allocator": sys.argv[2], "median_s": median_s, "errors": wrong, "live_blocks": live}


def compared(own, theirs, wrong, live):
    return {
        "allocations": ALLOCATIONS,
        "warpheap_s": median(own),
        "own_pool_s": median(theirs),
        "times_as_fast": median(theirs) / median(own),
        "errors": wrong,
        "live_blocks": live,
    }


if __name__ == "__main__":
    benches = {"numba": numba_pairs, "cupy": cupy_arrays, "torch": torch_tensors}
    figures = benches[sys.argv[1]]()
    print(json.dumps(figures))
    faults = [
        name for name in figures if name.endswith(("failed_allocations", "errors", "live_blocks"))
    ]
    sys.exit(1 if any(figures[name] for name in faults) else 0)
