// Forks while other threads call every kind of pool: each call of the child is an error at once.
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

// Seconds after which a child that waits is ended.
enum { THREADS = 3, FORKS = 20, LIMIT = 20 };

#define FORKED(call) FAILS(call, WH_FORKED, "forked child")

static wh_heap_owner heap;
static wh_bump_owner bump;
static wh_freelist_owner list;
static wh_pool pool;

static void create(void) {
    heap = make_heap(4 * MIB);
    OPTIONS(wh_bump_options, of_bump);
    of_bump.capacity = MIB;
    OK(wh_bump_create(cpu(), &of_bump, &bump));
    OPTIONS(wh_freelist_options, of_list);
    of_list.blocks = 100;
    of_list.block_size = 64;
    OK(wh_freelist_create(cpu(), &of_list, &list));
    OK(wh_pool_create(cpu(), NULL, &pool));
}

static void destroy(void) {
    OK(wh_heap_destroy(heap));
    OK(wh_bump_destroy(bump));
    OK(wh_freelist_destroy(list));
    OK(wh_pool_destroy(pool));
}

// Until the pools are destroyed.
static void *use(void *unused) {
    (void)unused;
    wh_status status = WH_OK;
    while (status == WH_OK) {
        void *block = NULL;
        uint64_t violations = 0;
        char *text = NULL;
        status = wh_heap_allocate(heap, 64, 0, &block);
        if (status == WH_OK) {
            wh_heap_deallocate(heap, block);
        }
        wh_bump_check(bump, &violations, NULL);
        wh_freelist_reset(list);
        if (wh_pool_allocate(pool, 5000, 0, NULL, &block) == WH_OK) {
            wh_pool_deallocate(pool, block, NULL);
        }
        if (wh_pool_stats_json(pool, &text) == WH_OK) {
            OK(wh_string_free(text));
        }
    }
    return NULL;
}

static void every_call_fails(void *block) {
    void *out = &out;
    char *text = (char *)&text;
    const char *ptx = NULL;
    uint64_t number = 7;
    wh_heap_owner none = {7};
    wh_pool no_pool = {7};
    OPTIONS(wh_heap_options, options);
    OPTIONS(wh_heap_stats, stats);
    options.bytes = MIB;
    FORKED(wh_heap_create(cpu(), &options, &none));
    REQUIRE(none.id == 0);
    FORKED(wh_heap_allocate(heap, 64, 0, &out));
    REQUIRE(out == NULL);
    FORKED(wh_heap_deallocate(heap, block));
    FORKED(wh_heap_grow(heap, MIB, &number));
    FORKED(wh_heap_reset(heap));
    FORKED(wh_heap_check(heap, &number, NULL));
    FORKED(wh_heap_get_stats(heap, &stats));
    FORKED(wh_heap_stats_json(heap, &text));
    REQUIRE(text == NULL);
    FORKED(wh_heap_leaks_json(heap, 1, &text));
    FORKED(wh_heap_faults_json(heap, &text));
    FORKED(wh_heap_report(heap, &text));
    FORKED(wh_heap_destroy(heap));
    FORKED(wh_bump_reset(bump));
    FORKED(wh_bump_check(bump, &number, NULL));
    FORKED(wh_bump_stats_json(bump, &text));
    FORKED(wh_bump_destroy(bump));
    FORKED(wh_freelist_reset(list));
    FORKED(wh_freelist_check(list, &number, NULL));
    FORKED(wh_freelist_stats_json(list, &text));
    FORKED(wh_freelist_faults_json(list, &text));
    FORKED(wh_freelist_destroy(list));
    FORKED(wh_pool_create(cpu(), NULL, &no_pool));
    FORKED(wh_pool_allocate(pool, 64, 0, NULL, &out));
    FORKED(wh_pool_deallocate(pool, block, NULL));
    FORKED(wh_pool_forget_stream(pool, NULL));
    FORKED(wh_pool_trim(pool, &number));
    FORKED(wh_pool_stats_json(pool, &text));
    FORKED(wh_pool_report(pool, &text));
    FORKED(wh_pool_destroy(pool));
    FORKED(wh_string_free((char *)&text));
    FORKED(wh_device_library(9, 0, &ptx, NULL));
}

static void works(void *block) {
    (void)block;
    create();
    OK(wh_heap_allocate(heap, 64, 0, &block));
    destroy();
}

// Runs `body` in a child, which must end in time.
static void in_child(void (*body)(void *), void *block) {
    fflush(NULL);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(LIMIT);
        body(block);
        fflush(NULL);
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(!WIFSIGNALED(status));
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void fork_again(void *block) {
    in_child(every_call_fails, block);
}

int main(void) {
    // Before the first pool, children can use the library.
    in_child(works, NULL);
    create();
    void *block = NULL;
    OK(wh_heap_allocate(heap, 64, 0, &block));
    in_child(every_call_fails, block);
    in_child(fork_again, block);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, use, NULL) == 0);
    }
    for (int i = 0; i < FORKS; i++) {
        in_child(every_call_fails, block);
    }
    OK(wh_heap_deallocate(heap, block));
    destroy();
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    }
    return 0;
}
