// Bad input is an error with a text.
#include "check.h"

static const wh_heap_owner no_heap = {0};
static const wh_bump_owner no_bump = {0};
static const wh_freelist_owner no_list = {0};
static const wh_pool no_pool = {0};

// Every function of a heap fails for this owner.
static void fails_for_heap(wh_heap_owner heap, const char *part) {
    wh_heap *handle = (wh_heap *)&handle;
    void *block = &handle;
    char *text = NULL;
    uint64_t count = 7;
    OPTIONS(wh_heap_stats, stats);
    FAILS(wh_heap_handle(heap, &handle), WH_INVALID_HANDLE, part);
    FAILS(wh_heap_allocate(heap, 8, 0, &block), WH_INVALID_HANDLE, part);
    REQUIRE(handle == NULL && block == NULL);
    FAILS(wh_heap_deallocate(heap, &text), WH_INVALID_HANDLE, part);
    FAILS(wh_heap_grow(heap, MIB, &count), WH_INVALID_HANDLE, part);
    FAILS(wh_heap_reset(heap), WH_INVALID_HANDLE, part);
    FAILS(wh_heap_check(heap, &count, &text), WH_INVALID_HANDLE, part);
    FAILS(wh_heap_get_stats(heap, &stats), WH_INVALID_HANDLE, part);
    FAILS(wh_heap_stats_json(heap, &text), WH_INVALID_HANDLE, part);
    FAILS(wh_heap_leaks_json(heap, 8, &text), WH_INVALID_HANDLE, part);
    FAILS(wh_heap_faults_json(heap, &text), WH_INVALID_HANDLE, part);
    FAILS(wh_heap_report(heap, &text), WH_INVALID_HANDLE, part);
    REQUIRE(text == NULL && count == 0);
    FAILS(wh_heap_destroy(heap), WH_INVALID_HANDLE, part);
}

static void fails_for_others(wh_bump_owner bump, wh_freelist_owner list, const char *part) {
    wh_bump *arena = NULL;
    wh_freelist *freelist = NULL;
    char *text = NULL;
    uint64_t count = 7;
    FAILS(wh_bump_handle(bump, &arena), WH_INVALID_HANDLE, part);
    FAILS(wh_bump_reset(bump), WH_INVALID_HANDLE, part);
    FAILS(wh_bump_check(bump, &count, NULL), WH_INVALID_HANDLE, part);
    FAILS(wh_bump_stats_json(bump, &text), WH_INVALID_HANDLE, part);
    FAILS(wh_bump_destroy(bump), WH_INVALID_HANDLE, part);
    FAILS(wh_freelist_handle(list, &freelist), WH_INVALID_HANDLE, part);
    FAILS(wh_freelist_reset(list), WH_INVALID_HANDLE, part);
    FAILS(wh_freelist_check(list, &count, NULL), WH_INVALID_HANDLE, part);
    FAILS(wh_freelist_stats_json(list, &text), WH_INVALID_HANDLE, part);
    FAILS(wh_freelist_faults_json(list, &text), WH_INVALID_HANDLE, part);
    FAILS(wh_freelist_destroy(list), WH_INVALID_HANDLE, part);
}

static void fails_for_pool(wh_pool pool, const char *part) {
    void *block = &block;
    char *text = NULL;
    FAILS(wh_pool_allocate(pool, 8, 0, NULL, &block), WH_INVALID_HANDLE, part);
    REQUIRE(block == NULL);
    FAILS(wh_pool_deallocate(pool, &text, NULL), WH_INVALID_HANDLE, part);
    FAILS(wh_pool_forget_stream(pool, NULL), WH_INVALID_HANDLE, part);
    FAILS(wh_pool_trim(pool, NULL), WH_INVALID_HANDLE, part);
    FAILS(wh_pool_stats_json(pool, &text), WH_INVALID_HANDLE, part);
    FAILS(wh_pool_report(pool, &text), WH_INVALID_HANDLE, part);
    FAILS(wh_pool_destroy(pool), WH_INVALID_HANDLE, part);
}

static void owners(void) {
    wh_heap_owner heap = make_heap(MIB), strange = {12345};
    wh_bump_owner bump;
    wh_freelist_owner list;
    wh_pool pool;
    OPTIONS(wh_bump_options, bump_options);
    bump_options.capacity = MIB;
    OPTIONS(wh_freelist_options, list_options);
    list_options.blocks = list_options.block_size = 16;
    OK(wh_bump_create(cpu(), &bump_options, &bump));
    OK(wh_freelist_create(cpu(), &list_options, &list));
    OK(wh_pool_create(cpu(), NULL, &pool));
    // An owner of another kind.
    strange.id = pool.id;
    fails_for_heap(strange, "there is no heap");
    OK(wh_heap_destroy(heap));
    OK(wh_bump_destroy(bump));
    OK(wh_freelist_destroy(list));
    OK(wh_pool_destroy(pool));
    fails_for_heap(no_heap, "the heap is null");
    fails_for_heap(heap, "was destroyed");
    fails_for_others(no_bump, no_list, "is null");
    fails_for_others(bump, list, "was destroyed");
    fails_for_pool(no_pool, "the caching pool is null");
    fails_for_pool(pool, "was destroyed");
}

static void null_places(void) {
    wh_heap_owner heap = make_heap(MIB);
    wh_pool pool;
    OPTIONS(wh_heap_options, options);
    options.bytes = MIB;
    FAILS(wh_heap_create(cpu(), &options, NULL), WH_INVALID_ARGUMENT, "`heap`: it is null");
    FAILS(wh_heap_create(cpu(), NULL, &heap), WH_INVALID_ARGUMENT, "pass a wh_heap_options");
    REQUIRE(heap.id == 0);
    heap = make_heap(MIB);
    FAILS(wh_heap_handle(heap, NULL), WH_INVALID_ARGUMENT, "`handle`");
    FAILS(wh_heap_allocate(heap, 8, 0, NULL), WH_INVALID_ARGUMENT, "`block`");
    FAILS(wh_heap_check(heap, NULL, NULL), WH_INVALID_ARGUMENT, "`violations`");
    FAILS(wh_heap_get_stats(heap, NULL), WH_INVALID_ARGUMENT, "`stats`");
    FAILS(wh_heap_stats_json(heap, NULL), WH_INVALID_ARGUMENT, "`json`");
    FAILS(wh_heap_leaks_json(heap, 1, NULL), WH_INVALID_ARGUMENT, "`json`");
    FAILS(wh_heap_faults_json(heap, NULL), WH_INVALID_ARGUMENT, "`json`");
    FAILS(wh_heap_report(heap, NULL), WH_INVALID_ARGUMENT, "`text`");
    FAILS(wh_bump_create(cpu(), NULL, NULL), WH_INVALID_ARGUMENT, "`bump`");
    FAILS(wh_freelist_create(cpu(), NULL, NULL), WH_INVALID_ARGUMENT, "`freelist`");
    FAILS(wh_pool_create(cpu(), NULL, NULL), WH_INVALID_ARGUMENT, "`pool`");
    OK(wh_pool_create(cpu(), NULL, &pool));
    FAILS(wh_pool_allocate(pool, 8, 0, NULL, NULL), WH_INVALID_ARGUMENT, "`block`");
    FAILS(wh_pool_stats_json(pool, NULL), WH_INVALID_ARGUMENT, "`json`");
    FAILS(wh_pool_report(pool, NULL), WH_INVALID_ARGUMENT, "`text`");
    char bytes[32] = {0};
    FAILS(wh_pool_trim(pool, (uint64_t *)(void *)(bytes + 1)), WH_INVALID_ARGUMENT, "aligned");
    OK(wh_pool_destroy(pool));
    OK(wh_heap_destroy(heap));
}

static void frees(void) {
    wh_heap_owner heap = make_heap(4 * MIB);
    wh_pool pool;
    void *block = NULL, *large = NULL;
    int foreign = 0;
    OK(wh_heap_allocate(heap, 64, 0, &block));
    FAILS(wh_heap_deallocate(heap, &foreign), WH_INVALID_FREE, "is not in this heap");
    FAILS(wh_heap_deallocate(heap, NULL), WH_INVALID_FREE, "null");
    FAILS(wh_heap_deallocate(heap, (char *)block + 4), WH_INVALID_FREE, "inside a block");
    OK(wh_heap_deallocate(heap, block));
    FAILS(wh_heap_deallocate(heap, block), WH_INVALID_FREE, "already free");
    OK(wh_heap_destroy(heap));

    OK(wh_pool_create(cpu(), NULL, &pool));
    OK(wh_pool_allocate(pool, MIB, 0, NULL, &large));
    OK(wh_pool_allocate(pool, 64, 0, NULL, &block));
    FAILS(wh_pool_deallocate(pool, &foreign, NULL), WH_INVALID_FREE, "another allocator");
    FAILS(wh_pool_deallocate(pool, NULL, NULL), WH_INVALID_FREE, "0x0");
    FAILS(wh_pool_deallocate(pool, (char *)large + 512, NULL), WH_INVALID_FREE, "inside");
    OK(wh_pool_deallocate(pool, block, NULL));
    FAILS(wh_pool_deallocate(pool, block, NULL), WH_INVALID_FREE, "already free");
    FAILS(wh_pool_deallocate(pool, block, &foreign), WH_INVALID_FREE, "already free");
    OK(wh_pool_deallocate(pool, large, NULL));
    OK(wh_pool_destroy(pool));

    char *text = NULL, own[] = "text";
    heap = make_heap(MIB);
    OK(wh_heap_report(heap, &text));
    OK(wh_string_free(text));
    FAILS(wh_string_free(text), WH_INVALID_FREE, "once");
    FAILS(wh_string_free(own), WH_INVALID_FREE, "no string");
    OK(wh_heap_destroy(heap));
}

int main(void) {
    owners();
    null_places();
    frees();
    return 0;
}
