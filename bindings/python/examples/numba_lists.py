"""Linked lists in kernels of Numba: each thread builds a list, adds it up and frees it.

Needs an NVIDIA GPU, numba-cuda and warpheap: ``python3 numba_lists.py``.
"""

import numpy as np
import warpheap
from numba import cuda
from warpheap.numba import as_array, free, malloc

THREADS = 1 << 18
NODE = 16


@cuda.jit
def lists(heap, sums):
    i = cuda.grid(1)
    head = 0
    for value in range(i % 100):
        node = malloc(heap, NODE)
        if node == 0:
            break
        fields = as_array(node, 2, np.int64)
        fields[0] = head
        fields[1] = value
        head = node
    total = 0
    while head != 0:
        fields = as_array(head, 2, np.int64)
        following = fields[0]
        total += fields[1]
        free(heap, head)
        head = following
    sums[i] = total


def main():
    sums = cuda.device_array(THREADS, np.int64)
    with warpheap.Heap(1 << 30) as heap:
        lists[THREADS // 256, 256](heap.handle, sums)
        cuda.synchronize()
        stats = heap.stats()
    n = np.arange(THREADS) % 100
    wrong = int((sums.copy_to_host() != n * (n - 1) // 2).sum())
    live, failed = stats["live_blocks"], stats["failed_allocations"]
    print(f"{THREADS} lists, {wrong} wrong; live blocks: {live}, failed allocations: {failed}")
    assert wrong == live == 0


if __name__ == "__main__":
    main()
