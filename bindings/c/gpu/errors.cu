// Wrong arguments of libwarpheap on a GPU: each is an error with a text, and no crash. A kernel
// with a handle of zeros allocates nothing. Prints each text.
#include "host.hpp"
#include <cstring>

int wrong = 0;

void expect(const char *what, wh_status status, wh_status wanted) {
    bool is_right = status == wanted && std::strlen(wh_last_error()) > 10;
    std::printf("%s %s: %s\n", is_right ? "ok   " : "WRONG", what, wh_last_error());
    wrong += !is_right;
}

__global__ void use_nothing(wh_heap_value zeros, wh_heap *null, int *wrong) {
    void *a = wh_malloc(zeros, 64), *b = wh_malloc(null, 64);
    wh_free(zeros, wrong);
    wh_free(null, wrong);
    if (a != nullptr || b != nullptr || wh_calloc(null, 1, 64) != nullptr) {
        atomicAdd(wrong, 1);
    }
}

int main() {
    wh_heap_options options{};
    options.struct_bytes = sizeof options;
    options.bytes = u64{64} << 20;
    wh_heap_owner heap;
    expect("no context", wh_heap_create({}, &options, &heap), WH_NO_DEVICE);
    CHECK(cudaFree(nullptr));
    CHECK(wh_heap_create({}, &options, &heap));

    void *block;
    CHECK(wh_heap_allocate(heap, 100, 0, &block));
    int *memory;
    CHECK(cudaMalloc(&memory, 4096));
    CHECK(cudaMemset(memory, 0, 4096));
    expect("foreign address", wh_heap_deallocate(heap, memory), WH_INVALID_FREE);
    expect("inside of a block", wh_heap_deallocate(heap, static_cast<char *>(block) + 8),
           WH_INVALID_FREE);
    CHECK(wh_heap_deallocate(heap, block));
    expect("double free", wh_heap_deallocate(heap, block), WH_INVALID_FREE);
    expect("null owner", wh_heap_reset({}), WH_INVALID_HANDLE);
    expect("null result", wh_heap_handle(heap, nullptr), WH_INVALID_ARGUMENT);

    wh_pool pool;
    CHECK(wh_pool_create({}, nullptr, &pool));
    expect("stream of each thread", wh_pool_allocate(pool, 100, 0, cudaStreamPerThread, &block),
           WH_INVALID_ARGUMENT);
    expect("foreign block", wh_pool_deallocate(pool, memory, nullptr), WH_INVALID_FREE);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(wh_pool_allocate(pool, 1 << 20, 0, stream, &block));
    CHECK(cudaMemsetAsync(block, 1, 1 << 20, stream));
    CHECK(wh_pool_deallocate(pool, block, stream));
    expect("double free in a pool", wh_pool_deallocate(pool, block, stream), WH_INVALID_FREE);
    CHECK(wh_pool_forget_stream(pool, stream));
    options.bytes = u64{1} << 50;
    wh_heap_owner large;
    expect("a heap that is too large", wh_heap_create({}, &options, &large), WH_INVALID_ARGUMENT);

    use_nothing<<<2, 48>>>({}, nullptr, memory);
    CHECK(cudaDeviceSynchronize());
    int found;
    CHECK(cudaMemcpy(&found, memory, sizeof found, cudaMemcpyDeviceToHost));
    std::printf("%s handles of zeros\n", found == 0 ? "ok   " : "WRONG");

    CHECK(wh_heap_destroy(heap));
    expect("destroyed heap", wh_heap_reset(heap), WH_INVALID_HANDLE);
    expect("destroyed twice", wh_heap_destroy(heap), WH_INVALID_HANDLE);
    CHECK(wh_pool_destroy(pool));
    return wrong != 0 || found != 0;
}
