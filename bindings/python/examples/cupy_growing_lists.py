"""Growing arrays in kernels of CuPy: each thread keeps the divisors of its number.

Needs an NVIDIA GPU, CuPy and warpheap: ``python3 cupy_growing_lists.py``.
"""

import cupy
import warpheap
import warpheap.cupy

THREADS = 1 << 16

CODE = r"""
#include "warpheap.cuh"

struct List { int* items; int count; };

__device__ bool append(const wh_heap_value& heap, List& list, int item) {
    // The block has at least the requested size, so grow only if it is full.
    wh_heap* all = wh_heap_of(heap);
    if (wh_usable_size(all, list.items) < (list.count + 1) * sizeof(int)) {
        void* grown = wh_realloc(all, list.items, 2 * (list.count + 2) * sizeof(int));
        if (!grown) return false;
        list.items = static_cast<int*>(grown);
    }
    list.items[list.count++] = item;
    return true;
}

extern "C" __global__ void divisors(wh_heap_value heap, List* out) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    List list = {nullptr, 0};
    for (int d = 1; d * d <= n; d++) {
        if (n % d) continue;
        if (!append(heap, list, d)) break;
        if (d * d != n && !append(heap, list, n / d)) break;
    }
    out[n] = list;
}

extern "C" __global__ void sum_and_free(
    wh_heap_value heap, List* in, int* counts, long long* sums) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    long long sum = 0;
    for (int i = 0; i < in[n].count; i++) sum += in[n].items[i];
    counts[n] = in[n].count;
    sums[n] = sum;
    wh_free(heap, in[n].items);
}
"""


def main():
    module = warpheap.cupy.RawModule(CODE)
    lists = cupy.zeros((THREADS, 2), cupy.int64)
    counts, sums = cupy.zeros(THREADS, cupy.int32), cupy.zeros(THREADS, cupy.int64)
    grid, block = (THREADS // 256,), (256,)
    with warpheap.Heap(1 << 30) as heap:
        argument = warpheap.cupy.value(heap)
        module.get_function("divisors")(grid, block, (argument, lists))
        live = heap.stats()["live_blocks"]
        module.get_function("sum_and_free")(grid, block, (argument, lists, counts, sums))
        stats = heap.stats()
    total, most = int(counts.sum()), int(counts.max())
    print(f"{THREADS} lists with {total} divisors, at most {most} in a list")
    print(f"blocks: {live}, then {stats['live_blocks']}; failed: {stats['failed_allocations']}")
    # 60060 = 4 * 3 * 5 * 7 * 11 * 13 has 96 divisors.
    assert int(counts[60060]) == 96 and int(sums[28]) == 56 and stats["live_blocks"] == 0


if __name__ == "__main__":
    main()
