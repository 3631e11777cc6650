// Settings and requests that cannot be met, and devices that do not exist.
#include "check.h"

static void heaps(void) {
    wh_heap_owner heap = {7};
    OPTIONS(wh_heap_options, options);
    FAILS(wh_heap_create(cpu(), &options, &heap), WH_INVALID_ARGUMENT, "bytes = 0 B");
    REQUIRE(heap.id == 0);
    options.bytes = UINT64_MAX;
    FAILS(wh_heap_create(cpu(), &options, &heap), WH_INVALID_ARGUMENT, "bytes = ");
    options.bytes = (uint64_t)1 << 40;
    FAILS(wh_heap_create(cpu(), &options, &heap), WH_OUT_OF_MEMORY, "CPU");
    options.bytes = 2 * MIB;
    options.initial_bytes = 4 * MIB;
    FAILS(wh_heap_create(cpu(), &options, &heap), WH_INVALID_ARGUMENT, "initial");
    options.initial_bytes = 0;
    options.shards = UINT32_MAX;
    FAILS(wh_heap_create(cpu(), &options, &heap), WH_INVALID_ARGUMENT, "shards");
    options.shards = 0;
    options.largest_class = UINT32_MAX;
    FAILS(wh_heap_create(cpu(), &options, &heap), WH_INVALID_ARGUMENT, "largest_class");
    options.struct_bytes = 3;
    FAILS(wh_heap_create(cpu(), &options, &heap), WH_INVALID_ARGUMENT, "struct_bytes is 3");

    heap = make_heap(2 * MIB);
    void *block = NULL;
    uint64_t size = 7;
    FAILS(wh_heap_grow(heap, UINT64_MAX, &size), WH_OUT_OF_MEMORY, "cannot grow a heap");
    FAILS(wh_heap_allocate(heap, 0, 0, &block), WH_INVALID_ARGUMENT, "the size is 0");
    FAILS(wh_heap_allocate(heap, 8, 3, &block), WH_INVALID_ARGUMENT, "`align`: 3 is not a power");
    FAILS(wh_heap_allocate(heap, 8, 4 * MIB, &block), WH_INVALID_ARGUMENT, "alignment");
    FAILS(wh_heap_allocate(heap, SIZE_MAX, 0, &block), WH_INVALID_ARGUMENT, "address space");
    FAILS(wh_heap_allocate(heap, SIZE_MAX / 4, 0, &block), WH_OUT_OF_MEMORY, "is out of memory");
    REQUIRE(block == NULL && size == 0);
    OPTIONS(wh_heap_stats, stats);
    stats.struct_bytes = 0;
    FAILS(wh_heap_get_stats(heap, &stats), WH_INVALID_ARGUMENT, "wh_heap_stats has");
    OK(wh_heap_destroy(heap));
}

static void others(void) {
    wh_bump_owner bump;
    OPTIONS(wh_bump_options, arena);
    FAILS(wh_bump_create(cpu(), &arena, &bump), WH_INVALID_ARGUMENT, "capacity");
    arena.capacity = UINT64_MAX;
    FAILS(wh_bump_create(cpu(), &arena, &bump), WH_INVALID_ARGUMENT, "capacity");
    arena.min_align = 3;
    FAILS(wh_bump_create(cpu(), &arena, &bump), WH_INVALID_ARGUMENT, "min_align");
    arena.struct_bytes = 0;
    FAILS(wh_bump_create(cpu(), &arena, &bump), WH_INVALID_ARGUMENT, "sizeof(wh_bump_options)");

    wh_freelist_owner list;
    OPTIONS(wh_freelist_options, blocks);
    FAILS(wh_freelist_create(cpu(), &blocks, &list), WH_INVALID_ARGUMENT, "blocks = 0");
    blocks.blocks = 1;
    blocks.block_size = UINT64_MAX;
    FAILS(wh_freelist_create(cpu(), &blocks, &list), WH_INVALID_ARGUMENT, "block_size");
    blocks.align = 5;
    FAILS(wh_freelist_create(cpu(), &blocks, &list), WH_INVALID_ARGUMENT, "align");

    wh_pool pool;
    void *block = NULL;
    OPTIONS(wh_pool_options, options);
    options.min_block = 3;
    FAILS(wh_pool_create(cpu(), &options, &pool), WH_INVALID_ARGUMENT, "min_block");
    options.min_block = 0;
    options.max_bytes = 1;
    FAILS(wh_pool_create(cpu(), &options, &pool), WH_INVALID_ARGUMENT, "max_bytes");
    options.max_bytes = 8 * MIB;
    options.classes_per_doubling = 3;
    FAILS(wh_pool_create(cpu(), &options, &pool), WH_INVALID_ARGUMENT, "classes_per_doubling");
    options.classes_per_doubling = 0;
    OK(wh_pool_create(cpu(), &options, &pool));
    FAILS(wh_pool_allocate(pool, 0, 0, NULL, &block), WH_INVALID_ARGUMENT, "size must be");
    FAILS(wh_pool_allocate(pool, 9 * MIB, 0, NULL, &block), WH_OUT_OF_MEMORY, "cannot allocate");
    FAILS(wh_pool_allocate(pool, SIZE_MAX / 4, 0, NULL, &block), WH_INVALID_ARGUMENT, "cannot");
    FAILS(wh_pool_allocate(pool, 8, 7, NULL, &block), WH_INVALID_ARGUMENT, "`align`");
    FAILS(wh_pool_allocate(pool, 8, SIZE_MAX / 2 + 1, NULL, &block), WH_INVALID_ARGUMENT, "");
    OK(wh_pool_destroy(pool));
}

// Without a driver, or without a current context: no device. This program never makes one current.
static void devices(void) {
    wh_heap_owner heap;
    OPTIONS(wh_heap_options, options);
    options.bytes = MIB;
    int foreign = 0;
    wh_device cuda = {WH_CUDA, NULL}, strange = {99, NULL}, both = {WH_CPU, &foreign};
    FAILS(wh_heap_create(cuda, &options, &heap), WH_NO_DEVICE, "CUDA");
    FAILS(wh_heap_create(strange, &options, &heap), WH_INVALID_ARGUMENT, "99 is no wh_backend");
    FAILS(wh_heap_create(both, &options, &heap), WH_INVALID_ARGUMENT, "`device.context`");
    wh_pool pool;
    FAILS(wh_pool_create(cuda, NULL, &pool), WH_NO_DEVICE, "CUDA");
    REQUIRE(pool.id == 0);
}

int main(void) {
    heaps();
    others();
    devices();
    return 0;
}
