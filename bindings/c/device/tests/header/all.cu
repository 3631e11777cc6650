// Calls every function of warpheap.cuh once, for the test that compares the header with the
// library.
#include "warpheap.cuh"

struct pair {
    int first;
    double second;
    __device__ pair(int a, double b) : first(a), second(b) {}
};

__global__ void call_all(wh_heap_value value, wh_bump *arena, wh_freelist *list, void **out) {
    wh_free(value, wh_malloc(value, 24));
    wh_heap *heap = wh_heap_of(value);
    void *whole = nullptr;
    void *block = wh_realloc(heap, wh_malloc(heap, 16), 64);
    out[0] = reinterpret_cast<void *>(wh_usable_size(heap, block));
    wh_free(heap, block);
    wh_free(heap, wh_aligned_alloc(heap, 64, 16));
    wh_free(heap, wh_calloc(heap, 4, 16));
    wh_free_warp(heap, 1, wh_malloc_warp(heap, 1, 16));
    wh_free_block(heap, wh_malloc_block(heap, 16));
    out[1] = wh_malloc_block_each(heap, 16, &whole);
    wh_free_block(heap, whole);
    out[2] = wh_bump_alloc(arena, 16);
    out[3] = wh_bump_aligned_alloc(arena, 64, 16);
    wh_freelist_free(list, wh_freelist_alloc(list));

    warpheap::unique<pair> one = warpheap::make_unique<pair>(heap, 1, 2.0);
    warpheap::unique<pair> other(static_cast<warpheap::unique<pair> &&>(one));
    one = static_cast<warpheap::unique<pair> &&>(other);
    warpheap::allocator<double> doubles(heap);
    double *numbers = doubles.allocate(3);
    numbers[0] = one ? one->second : 0;
    doubles.deallocate(numbers, 3);
    out[4] = doubles == warpheap::allocator<int>(doubles) ? heap : nullptr;
}
