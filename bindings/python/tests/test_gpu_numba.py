"""Kernels of Numba on a GPU."""

from gpu_support import need, run

need("numpy", "numba.cuda.np.numpy_support")

import numpy as np  # noqa: E402
import warpheap  # noqa: E402
from numba import cuda  # noqa: E402
from warpheap.numba import (  # noqa: E402
    as_array,
    bump_alloc,
    free,
    free_block,
    free_warp,
    freelist_alloc,
    freelist_free,
    malloc,
    malloc_block,
    malloc_warp,
)

THREADS = 1 << 14
BLOCK = 256
GRID = THREADS // BLOCK


@cuda.jit
def store_and_free(heap, rounds, out):
    i = cuda.grid(1)
    total = 0
    for round in range(rounds):
        size = 16 << ((i + round) % 6)
        block = malloc(heap, size)
        if block == 0:
            total = -1
            break
        words = as_array(block, size // 4, np.int32)
        words[0] = i
        words[size // 4 - 1] = i + round
        total += words[size // 4 - 1] - i
        free(heap, block)
    out[i] = total


@cuda.jit
def build_list(heap, length, heads):
    i = cuda.grid(1)
    head = 0
    for value in range(length):
        node = malloc(heap, 16)
        if node != 0:
            fields = as_array(node, 2, np.int64)
            fields[0] = head
            fields[1] = value + i
            head = node
    heads[i] = head


@cuda.jit
def free_list(heap, heads, sums):
    i = cuda.grid(1)
    # Lists of other threads, of other blocks.
    node = heads[heads.size - 1 - i]
    total = 0
    while node != 0:
        fields = as_array(node, 2, np.int64)
        total += fields[1]
        following = fields[0]
        free(heap, node)
        node = following
    sums[heads.size - 1 - i] = total


@cuda.jit
def groups(heap, arena, blocks, out):
    i = cuda.grid(1)
    mask = 0xFFFFFFFF
    of_warp = malloc_warp(heap, mask, 128)
    words = as_array(of_warp, 32, np.int32)
    words[cuda.laneid] = i
    cuda.syncwarp()
    seen = words[31 - cuda.laneid]
    free_warp(heap, mask, of_warp)
    of_block = malloc_block(heap, 4 * cuda.blockDim.x)
    words = as_array(of_block, cuda.blockDim.x, np.int32)
    words[cuda.threadIdx.x] = seen
    cuda.syncthreads()
    seen = words[cuda.threadIdx.x ^ 31]
    free_block(heap, of_block)
    piece = bump_alloc(arena, 8)
    if piece != 0:
        as_array(piece, 1, np.int64)[0] = seen
    block = freelist_alloc(blocks)
    if block != 0 and piece != 0:
        as_array(block, 1, np.int64)[0] = as_array(piece, 1, np.int64)[0]
        out[i] = as_array(block, 1, np.int64)[0]
        freelist_free(blocks, block)


@cuda.jit
def free_twice(heap):
    block = malloc(heap, 64)
    free(heap, block)
    free(heap, block)


def test_blocks_hold_what_their_threads_store():
    out = cuda.to_device(np.full(THREADS, -2, np.int32))
    with warpheap.Heap(64 << 20) as heap:
        store_and_free[GRID, BLOCK](heap.handle, 8, out)
        cuda.synchronize()
        assert heap.check() == [] and heap.leaks()["count"] == 0 and heap.faults()["count"] == 0
    assert (out.copy_to_host() == sum(range(8))).all()


def test_lists_are_freed_by_other_threads():
    heads, sums = cuda.device_array(THREADS, np.int64), cuda.device_array(THREADS, np.int64)
    with warpheap.Heap(64 << 20) as heap:
        build_list[GRID, BLOCK](heap.handle, 10, heads)
        assert heap.leaks()["count"] == 10 * THREADS and heap.check() == []
        assert len(np.unique(heads.copy_to_host())) == THREADS
        free_list[GRID, BLOCK](heap.handle, heads, sums)
        assert heap.leaks()["count"] == 0 and heap.check() == [] and heap.faults()["count"] == 0
    assert (sums.copy_to_host() == 45 + 10 * np.arange(THREADS)).all()


def test_groups_arenas_and_free_lists_work():
    out = cuda.to_device(np.full(THREADS, -1, np.int64))
    with (
        warpheap.Heap(64 << 20) as heap,
        warpheap.Bump(1 << 20) as arena,
        warpheap.FreeList(THREADS, 64) as blocks,
    ):
        groups[GRID, BLOCK](heap.handle, arena.handle, blocks.handle, out)
        cuda.synchronize()
        assert heap.check() == arena.check() == blocks.check() == []
        assert heap.leaks()["count"] == 0 and blocks.stats()["live_blocks"] == 0
    assert (out.copy_to_host() == np.arange(THREADS)).all()


def test_faults_and_exhaustion_are_reported():
    with warpheap.Heap(64 << 20) as heap:
        free_twice[1, 1](heap.handle)
        cuda.synchronize()
        faults = heap.faults()
        assert faults["count"] == 1 and faults["first"][0]["kind"] == "DoubleFree", faults
    heads = cuda.device_array(THREADS, np.int64)
    with warpheap.Heap(1 << 20) as heap:
        build_list[GRID, BLOCK](heap.handle, 10, heads)
        cuda.synchronize()
        assert heap.stats()["failed_allocations"] > 0 and heap.check() == []
        heap.reset()
        assert heap.leaks()["count"] == 0


if __name__ == "__main__":
    run(globals())
