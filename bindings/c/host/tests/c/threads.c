// Eight threads use one heap and one pool, with own texts of errors, while one destroys them.
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <pthread.h>

enum { THREADS = 8, ROUNDS = 200 };

static wh_heap_owner heap;
static wh_pool pool;

static void *use(void *number) {
    int me = *(int *)number;
    char text[64];
    for (int round = 0; round < ROUNDS; round++) {
        void *blocks[4];
        for (int i = 0; i < 4; i++) {
            OK(wh_pool_allocate(pool, (size_t)(1000 * (me + i) + 1), 0, NULL, &blocks[i]));
            memset(blocks[i], me, (size_t)(1000 * (me + i) + 1));
        }
        // The text of this thread is not that of another.
        void *none;
        wh_heap_owner absent = {(uint64_t)(1000000 * (me + 1) + round)};
        snprintf(text, sizeof text, "the id %#llx;", (unsigned long long)absent.id);
        REQUIRE(wh_heap_allocate(absent, 8, 0, &none) == WH_INVALID_HANDLE);
        REQUIRE(strstr(wh_last_error(), text) != NULL);
        for (int i = 0; i < 4; i++) {
            REQUIRE(((unsigned char *)blocks[i])[1000 * (me + i)] == me);
            OK(wh_pool_deallocate(pool, blocks[i], NULL));
        }
        if (round % 50 == 0) {
            void *block = NULL;
            uint64_t violations = 7;
            OK(wh_heap_allocate(heap, 64, 0, &block));
            OK(wh_heap_check(heap, &violations, NULL));
            REQUIRE(violations == 0);
            OK(wh_heap_deallocate(heap, block));
            OK(wh_heap_grow(heap, MIB, NULL));
        }
    }
    return NULL;
}

// Uses the heap and the pool until they are destroyed.
static void *use_until_destroyed(void *unused) {
    (void)unused;
    wh_status status = WH_OK;
    while (status == WH_OK) {
        char *text = NULL;
        void *block = NULL;
        status = wh_heap_stats_json(heap, &text);
        OK(wh_string_free(text));
        if (wh_pool_allocate(pool, 5000, 0, NULL, &block) == WH_OK) {
            wh_status freed = wh_pool_deallocate(pool, block, NULL);
            REQUIRE(freed == WH_OK || freed == WH_INVALID_HANDLE);
        }
    }
    REQUIRE(status == WH_INVALID_HANDLE);
    REQUIRE(strstr(wh_last_error(), "destroyed") != NULL);
    return NULL;
}

static void start(pthread_t *threads, int *numbers, void *(*body)(void *)) {
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        REQUIRE(pthread_create(&threads[i], NULL, body, &numbers[i]) == 0);
    }
}

static void join(pthread_t *threads) {
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    }
}

int main(void) {
    pthread_t threads[THREADS];
    int numbers[THREADS];
    heap = make_heap(4 * MIB);
    OK(wh_pool_create(cpu(), NULL, &pool));
    start(threads, numbers, use);
    join(threads);
    char *text = NULL;
    OK(wh_pool_stats_json(pool, &text));
    contains(text, "\"live_blocks\":0");
    start(threads, numbers, use_until_destroyed);
    OK(wh_pool_destroy(pool));
    OK(wh_heap_destroy(heap));
    join(threads);
    return 0;
}
