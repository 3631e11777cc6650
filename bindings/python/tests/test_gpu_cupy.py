"""CuPy on a GPU: kernels that call warpheap, and arrays from a pool."""

import random

from gpu_support import need, raises, run
from value_kernels import CODE

need("cupy")

import cupy  # noqa: E402
import warpheap  # noqa: E402
import warpheap.cupy  # noqa: E402

THREADS = 1 << 14

# Declared here, not included: the kernels of `value_kernels` include the header.
LISTS = r"""
extern "C" __device__ void* wh_malloc(void* heap, size_t size);
extern "C" __device__ void wh_free(void* heap, void* block);

struct Node { Node* next; long long value; };

extern "C" __global__ void build(void* heap, int length, Node** heads) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Node* head = nullptr;
    for (int value = 0; value < length; value++) {
        Node* node = static_cast<Node*>(wh_malloc(heap, sizeof(Node)));
        if (!node) break;
        node->next = head;
        node->value = value + i;
        head = node;
    }
    heads[i] = head;
}

extern "C" __global__ void sum_and_free(void* heap, Node** heads, long long* sums) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    long long sum = 0;
    for (Node* node = heads[i]; node;) {
        sum += node->value;
        Node* next = node->next;
        wh_free(heap, node);
        node = next;
    }
    sums[i] = sum;
}

template <typename T> __global__ void square(void* heap, T* values) {
    int i = threadIdx.x;
    T* block = static_cast<T*>(wh_malloc(heap, sizeof(T)));
    *block = values[i];
    values[i] = *block * *block;
    wh_free(heap, block);
}
"""


def test_kernels_build_and_free_lists():
    module = warpheap.cupy.RawModule(LISTS)
    build, sum_and_free = module.get_function("build"), module.get_function("sum_and_free")
    heads, sums = cupy.zeros(THREADS, cupy.int64), cupy.zeros(THREADS, cupy.int64)
    grid, block = (THREADS // 256,), (256,)
    with warpheap.Heap(64 << 20) as heap:
        build(grid, block, (heap.handle, cupy.int32(10), heads))
        assert heap.leaks()["count"] == 10 * THREADS and heap.check() == []
        sum_and_free(grid, block, (heap.handle, heads, sums))
        assert heap.leaks()["count"] == 0 and heap.check() == [] and heap.faults()["count"] == 0
    assert (sums == 45 + 10 * cupy.arange(THREADS)).all()


def test_templates_are_found_by_their_expressions():
    module = warpheap.cupy.RawModule(LISTS, name_expressions=["square<double>", "square<int>"])
    with warpheap.Heap(8 << 20) as heap:
        for name, kind in (("square<double>", cupy.float64), ("square<int>", cupy.int32)):
            values = cupy.arange(32, dtype=kind)
            module.get_function(name)((1,), (32,), (heap.handle, values))
            assert (values == cupy.arange(32, dtype=kind) ** 2).all()


def by_value(heap, name, *arguments):
    """Launches a kernel of `value_kernels` with the heap by value."""
    kernel = warpheap.cupy.RawModule(CODE).get_function(name)
    kernel((THREADS // 256,), (256,), (warpheap.cupy.value(heap), *arguments))


def fill_and_drain(heap, step, count):
    """Fills up to `count` blocks for each `step`-th thread, and returns each thread's number."""
    lists, allocated = cupy.zeros(THREADS, cupy.int64), cupy.zeros(THREADS, cupy.int32)
    wrong = cupy.zeros(1, cupy.int32)
    by_value(heap, "fill", cupy.int32(step), cupy.int32(count), lists, allocated)
    assert heap.check() == [] and heap.leaks()["count"] == int(allocated.sum())
    by_value(heap, "drain", lists, allocated, wrong)
    assert heap.check() == [] and heap.leaks()["count"] == heap.faults()["count"] == 0
    assert int(wrong[0]) == 0
    return allocated


def test_full_and_partial_warps_use_a_heap_by_value():
    for step in (1, 3):
        with warpheap.Heap(256 << 20) as heap:
            allocated = fill_and_drain(heap, step, 12)
        assert (allocated == cupy.where(cupy.arange(THREADS) % step == 0, 12, 0)).all()


def test_a_heap_by_value_is_exhausted_and_used_again():
    with warpheap.Heap(1 << 20) as heap:
        for step in (1, 3, 1):
            failed = heap.stats()["failed_allocations"]
            assert 0 < int(fill_and_drain(heap, step, 12).sum()) < 12 * THREADS // step
            assert heap.stats()["failed_allocations"] > failed


def test_owners_free_their_objects():
    sums = cupy.full(THREADS, -1, cupy.int64)
    with warpheap.Heap(64 << 20) as heap:
        by_value(heap, "own", cupy.int32(3), sums)
        assert heap.check() == [] and heap.leaks()["count"] == heap.faults()["count"] == 0
    threads = cupy.arange(THREADS)
    assert (sums == cupy.where(threads % 3 == 0, 3 * threads + 1, 0)).all()


def test_errors_of_the_compiler_are_raised():
    kernel = warpheap.cupy.RawKernel('extern "C" __global__ void f() { nonsense; }', "f")
    raises(cupy.cuda.compiler.CompileException, "nonsense", lambda: kernel((1,), (1,), ()))
    raises(TypeError, "CUDA C++", lambda: warpheap.cupy.RawModule(b"bytes"))


def churn(count, seed):
    """Random arrays on two streams. Each must keep its values until it is dropped."""
    rng = random.Random(seed)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    live = {0: [], 1: []}
    for i in range(count):
        which = rng.randrange(2)
        arrays = live[which]
        with streams[which]:
            if len(arrays) > 20 or (arrays and rng.random() < 0.5):
                array, value = arrays.pop(rng.randrange(len(arrays)))
                if i % 50 == 0:
                    assert bool((array == value).all()), f"allocation {i} was overwritten"
                del array
            size = int(2 ** rng.uniform(0, 22))
            arrays.append((cupy.full(size, i, cupy.int32), i))
    for which, arrays in live.items():
        with streams[which]:
            assert all(bool((array == value).all()) for array, value in arrays)
            arrays.clear()


def test_arrays_come_from_a_pool():
    pool = warpheap.CachingPool(warpheap.Device.cuda(), name="arrays")
    with warpheap.cupy.using_pool(pool):
        churn(10_000, 1)
        assert pool.stats()["live_blocks"] == 0 and pool.stats()["hits"] > 0
        assert cupy.zeros((0, 5)).size == 0
        kept = cupy.arange(100)
    assert pool.stats()["live_blocks"] == 1 and int(kept.sum()) == 4950
    del kept
    cupy.cuda.Device().synchronize()
    pool.close()


def test_use_pool_and_out_of_memory():
    pool = warpheap.CachingPool(warpheap.Device.cuda(), max_bytes=64 << 20, name="small")
    try:
        assert warpheap.cupy.use_pool(pool) is pool
        raises(warpheap.OutOfMemory, "small", lambda: cupy.zeros(1 << 30, cupy.uint8))
        assert int(cupy.ones(1000).sum()) == 1000
    finally:
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
    raises(
        warpheap.NotSupported,
        "on a GPU",
        lambda: warpheap.cupy.allocator(warpheap.CachingPool(warpheap.Device.cpu())),
    )
    raises(TypeError, "CachingPool", lambda: warpheap.cupy.use_pool(5))


def test_an_allocation_is_an_array():
    with warpheap.CachingPool(warpheap.Device.cuda()) as pool:
        block = pool.allocate(1024, cupy.cuda.get_current_stream())
        array = cupy.asarray(block)
        array[:] = 3
        assert array.shape == (1024,) and int(array.sum()) == 3072
        assert array.data.ptr == block.ptr
        cupy.cuda.Device().synchronize()


if __name__ == "__main__":
    run(globals())
