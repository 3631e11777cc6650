// The header in C++17: the types of the ABI, and one pass through a heap and a pool.
#include "check.h"
#include <cstddef>
#include <type_traits>

struct wh_heap;

static_assert(sizeof(wh_status) == 4 && sizeof(wh_backend) == 4, "both are 32 bits");
static_assert(sizeof(wh_heap_owner) == 8 && sizeof(wh_pool) == 8, "an owner is an id");
static_assert(std::is_trivially_copyable<wh_heap_owner>::value, "owners are plain data");
static_assert(offsetof(wh_device, context) == 8 && sizeof(wh_device) == 16, "wh_device");
static_assert(offsetof(wh_heap_options, struct_bytes) == 0, "the size comes first");
static_assert(sizeof(wh_heap_options) == 32 && sizeof(wh_heap_stats) == 96, "sizes");

int main() {
    wh_heap_owner heap = make_heap(2 * MIB);
    wh_heap *handle = nullptr;
    void *block = nullptr;
    OK(wh_heap_handle(heap, &handle));
    OK(wh_heap_allocate(heap, 64, 0, &block));
    FAILS(wh_heap_deallocate(heap, &heap), WH_INVALID_FREE, "not in this heap");
    OK(wh_heap_deallocate(heap, block));
    OK(wh_heap_destroy(heap));
    wh_pool pool{};
    OK(wh_pool_create({WH_CPU, nullptr}, nullptr, &pool));
    OK(wh_pool_allocate(pool, 64, 0, nullptr, &block));
    OK(wh_pool_deallocate(pool, block, nullptr));
    OK(wh_pool_destroy(pool));
    return 0;
}
