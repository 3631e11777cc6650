"""PyTorch's tensors from a pool of warpheap, and a kernel with output of variable length.

Each thread finds the prime factors of its number and keeps exactly as many as there are; no kernel
counts them before. A second kernel copies them into one tensor.

Needs an NVIDIA GPU, PyTorch, CuPy and warpheap: ``python3 torch_pool.py``.
"""

import cupy
import torch
import warpheap
import warpheap.cupy
import warpheap.torch

THREADS = 1 << 16

CODE = r"""
#include "warpheap.cuh"

extern "C" __global__ void factorise(wh_heap_value heap, int** out, int* counts) {
    int n = blockIdx.x * blockDim.x + threadIdx.x, rest = n, count = 0, found[16];
    for (int p = 2; p * p <= rest; p++)
        for (; rest % p == 0; rest /= p) found[count++] = p;
    if (rest > 1) found[count++] = rest;
    int* factors = static_cast<int*>(wh_malloc(heap, count * sizeof(int)));
    counts[n] = factors ? count : 0;
    for (int i = 0; factors && i < count; i++) factors[i] = found[i];
    out[n] = factors;
}

extern "C" __global__ void collect(wh_heap_value heap, int** in, const int* counts,
                                   const long long* ends, int* all) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = 0; i < counts[n]; i++) all[ends[n] - counts[n] + i] = in[n][i];
    wh_free(heap, in[n]);
}
"""


def main():
    warpheap.torch.use_pool(warpheap.CachingPool(warpheap.Device.cuda(), name="tensors"))
    module = warpheap.cupy.RawModule(CODE)
    blocks = torch.zeros(THREADS, dtype=torch.int64, device="cuda")
    counts = torch.zeros(THREADS, dtype=torch.int32, device="cuda")
    grid, block = (THREADS // 256,), (256,)
    torch.cuda.synchronize()
    with warpheap.Heap(256 << 20) as heap:
        argument = warpheap.cupy.value(heap)
        pointers = [tensor.data_ptr() for tensor in (blocks, counts)]
        module.get_function("factorise")(grid, block, (argument, *pointers))
        cupy.cuda.Device().synchronize()
        ends = counts.cumsum(0)
        factors = torch.empty(int(ends[-1]), dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        pointers = [tensor.data_ptr() for tensor in (blocks, counts, ends, factors)]
        module.get_function("collect")(grid, block, (argument, *pointers))
        cupy.cuda.Device().synchronize()
        live = heap.stats()["live_blocks"]
    first, last = int(ends[THREADS - 2]), int(ends[THREADS - 1])
    print(f"{factors.numel()} factors of {THREADS} numbers; live blocks in the heap: {live}")
    print(f"{THREADS - 1} = {' * '.join(str(int(f)) for f in factors[first:last])}")
    print(f"blocks of tensors in the pool: {warpheap.torch.pool().stats()['live_blocks']}")
    assert live == 0 and int(factors[first:last].prod()) == THREADS - 1


if __name__ == "__main__":
    main()
