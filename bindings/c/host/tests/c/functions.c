// Calls every function once with valid arguments.
#include "check.h"

static void heaps(void) {
    wh_heap_owner heap;
    OPTIONS(wh_heap_options, options);
    options.bytes = 8 * MIB;
    options.initial_bytes = 2 * MIB;
    options.largest_class = 4096;
    options.shards = 2;
    OK(wh_heap_create(cpu(), &options, &heap));
    REQUIRE(heap.id != 0);

    wh_heap *handle = NULL;
    OK(wh_heap_handle(heap, &handle));
    REQUIRE(handle != NULL);
    wh_heap_value value;
    OK(wh_heap_get_value(heap, &value));
    REQUIRE(value.wide[13] == (uintptr_t)handle);
    uint64_t size = 0;
    OK(wh_heap_grow(heap, 4 * MIB, &size));
    REQUIRE(size == 4 * MIB);
    OK(wh_heap_grow(heap, 5 * MIB, NULL));

    void *small = NULL, *large = NULL;
    OK(wh_heap_allocate(heap, 100, 0, &small));
    REQUIRE(small != NULL && (uintptr_t)small % 16 == 0);
    OK(wh_heap_allocate(heap, 3 * MIB, 4096, &large));
    REQUIRE(large != NULL && (uintptr_t)large % 4096 == 0);

    OPTIONS(wh_heap_stats, stats);
    OK(wh_heap_get_stats(heap, &stats));
    REQUIRE(stats.struct_bytes == sizeof stats);
    REQUIRE(stats.live_blocks == 2 && stats.used_bytes >= 3 * MIB + 100);
    REQUIRE(stats.max_bytes == 8 * MIB && stats.reserved_bytes >= 5 * MIB);
    REQUIRE(stats.free_bytes + stats.used_bytes <= stats.reserved_bytes && stats.faults == 0);
    char *text = NULL;
    OK(wh_heap_stats_json(heap, &text));
    contains(text, "\"live_blocks\":2");
    OK(wh_heap_leaks_json(heap, 1, &text));
    contains(text, "\"count\":2");
    OK(wh_heap_faults_json(heap, &text));
    contains(text, "{\"count\":0,\"first\":[]}");
    OK(wh_heap_report(heap, &text));
    printf("%s\n", text);
    contains(text, "report of a heap");
    uint64_t violations = 7;
    OK(wh_heap_check(heap, &violations, &text));
    REQUIRE(violations == 0);
    contains(text, "[]");

    OK(wh_heap_deallocate(heap, small));
    OK(wh_heap_deallocate(heap, large));
    OK(wh_heap_allocate(heap, 100, 0, &small));
    OK(wh_heap_reset(heap));
    OK(wh_heap_get_stats(heap, &stats));
    REQUIRE(stats.live_blocks == 0 && stats.used_bytes == 0);
    OK(wh_heap_check(heap, &violations, NULL));
    REQUIRE(violations == 0);
    OK(wh_heap_destroy(heap));
}

static void arenas(void) {
    wh_bump_owner bump;
    OPTIONS(wh_bump_options, options);
    options.capacity = MIB;
    options.min_align = 64;
    options.shards = WH_NO_SHARDS;
    OK(wh_bump_create(cpu(), &options, &bump));
    wh_bump *handle = NULL;
    OK(wh_bump_handle(bump, &handle));
    REQUIRE(handle != NULL);
    OK(wh_bump_reset(bump));
    char *text = NULL;
    uint64_t violations = 7;
    OK(wh_bump_check(bump, &violations, &text));
    REQUIRE(violations == 0);
    contains(text, "[]");
    OK(wh_bump_stats_json(bump, &text));
    contains(text, "\"remaining_bytes\":1048576");
    OK(wh_bump_destroy(bump));
}

static void lists(void) {
    wh_freelist_owner list;
    OPTIONS(wh_freelist_options, options);
    options.blocks = 1000;
    options.block_size = 48;
    options.align = 32;
    OK(wh_freelist_create(cpu(), &options, &list));
    wh_freelist *handle = NULL;
    OK(wh_freelist_handle(list, &handle));
    REQUIRE(handle != NULL);
    OK(wh_freelist_reset(list));
    char *text = NULL;
    uint64_t violations = 7;
    OK(wh_freelist_check(list, &violations, &text));
    REQUIRE(violations == 0);
    contains(text, "[]");
    OK(wh_freelist_stats_json(list, &text));
    contains(text, "\"free_blocks\":1000");
    OK(wh_freelist_faults_json(list, &text));
    contains(text, "\"count\":0");
    OK(wh_freelist_destroy(list));
}

static void pools(void) {
    wh_pool pool;
    OPTIONS(wh_pool_options, options);
    options.max_bytes = 64 * MIB;
    options.min_block = 256;
    options.slab_limit = 32768;
    options.spare_bytes = 16 * MIB;
    options.classes_per_doubling = 4;
    OK(wh_pool_create(cpu(), &options, &pool));
    void *first = NULL, *second = NULL;
    OK(wh_pool_allocate(pool, 1000, 0, NULL, &first));
    REQUIRE(first != NULL && (uintptr_t)first % 256 == 0);
    memset(first, 1, 1000);
    char *text = NULL;
    OK(wh_pool_stats_json(pool, &text));
    contains(text, "\"live_blocks\":1");
    OK(wh_pool_report(pool, &text));
    printf("%s\n", text);
    contains(text, "report of a caching pool");
    OK(wh_pool_deallocate(pool, first, NULL));
    // From the cache of the stream: its id is the same in each call.
    OK(wh_pool_allocate(pool, 1000, 0, NULL, &second));
    REQUIRE(first == second);
    OK(wh_pool_deallocate(pool, second, NULL));
    OK(wh_pool_forget_stream(pool, NULL));
    OK(wh_pool_forget_stream(pool, NULL));
    uint64_t released = 0;
    OK(wh_pool_trim(pool, &released));
    REQUIRE(released > 0);
    OK(wh_pool_trim(pool, NULL));
    OK(wh_pool_destroy(pool));
    OK(wh_pool_create(cpu(), NULL, &pool));
    // On the CPU, each value is a stream of its own, also those with a meaning in CUDA.
    for (uintptr_t stream = 1; stream < 4; stream++) {
        OK(wh_pool_allocate(pool, 1000, 0, (void *)stream, &first));
        OK(wh_pool_deallocate(pool, first, (void *)stream));
        OK(wh_pool_allocate(pool, 1000, 0, (void *)stream, &second));
        REQUIRE(first == second);
        OK(wh_pool_deallocate(pool, second, NULL));
        OK(wh_pool_forget_stream(pool, (void *)stream));
    }
    // Live blocks do not keep a pool.
    OK(wh_pool_allocate(pool, 1, 1, NULL, &first));
    OK(wh_pool_destroy(pool));
}

// A build without a compiler for kernels has no device library.
static void device_library(void) {
    const char *ptx = NULL;
    size_t bytes = 0;
    wh_status status = wh_device_library(9, 0, &ptx, &bytes);
    if (status == WH_OK) {
        REQUIRE(bytes > 1000 && strlen(ptx) == bytes && strstr(ptx, "wh_malloc") != NULL);
        OK(wh_device_library(12, 1, &ptx, NULL));
        FAILS(wh_device_library(6, 1, &ptx, NULL), WH_NOT_SUPPORTED, "7.0 or newer, not");
        FAILS(wh_device_library(-1, -1, &ptx, NULL), WH_NOT_SUPPORTED, "7.0 or newer, not");
    } else {
        FAILS(status, WH_NOT_SUPPORTED, "has no device library");
    }
    FAILS(wh_device_library(9, 0, NULL, NULL), WH_INVALID_ARGUMENT, "`ptx`");
}

int main(void) {
    REQUIRE(strcmp(wh_last_error(), "") == 0);
    REQUIRE(strcmp(wh_version(), "0.1.0") == 0);
    REQUIRE(strcmp(wh_status_name(WH_FORKED), "WH_FORKED") == 0);
    REQUIRE(strcmp(wh_status_name(-5), "unknown status") == 0);
    heaps();
    arenas();
    lists();
    pools();
    OK(wh_string_free(NULL));
    device_library();
    return 0;
}
