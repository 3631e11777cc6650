// A kernel in Rust and a kernel in CUDA C++ on two streams exchange the blocks of one heap: each
// frees what the other allocated, after it has verified the block's content.
//
// usage: mixed RUST.ptx PAIRS [plant]: the kernels of `bindings/c/device/tests/mixed/kernels`, and
// the least number of blocks to free. `plant`: the kernel in C++ frees some blocks too early, which
// must be found. Prints JSON. Fails if a block was torn or lost, or if the heap is damaged.
#include "host.hpp"
#include <chrono>
#include <cstring>

// Both kernels together fill a GPU with 132 multiprocessors.
constexpr u32 THREADS = 1 << 17, STEPS = 64;

int main(int argc, char **argv) {
    if (argc < 3 || argc > 4 || (argc == 4 && std::strcmp(argv[3], "plant") != 0)) {
        fail("usage", "mixed RUST.ptx PAIRS [plant]");
    }
    u64 wanted = std::strtoull(argv[2], nullptr, 10);
    u32 plant = argc == 4;
    CHECK(cudaFree(nullptr));
    // Small, so that it is full at times.
    warpheap::heap heap(u64{64} << 20);
    Words cells(THREADS), counts(4);
    Linked rust({read(argv[1])}, 32);
    CUfunction rust_exchange = rust.function("rust_exchange"), cpp = function_of(cpp_exchange);
    cudaStream_t streams[2];
    for (cudaStream_t &stream : streams) {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    exchange_round round{1, STEPS, 16, 512, 0};
    wh_heap_value value = heap.value();
    auto began = std::chrono::steady_clock::now();
    u64 launches = 0;
    std::vector<u64> seen;
    do {
        round.language = 0;
        launch(rust_exchange, THREADS, streams[0], value, cells.all(), counts.all(), round);
        round.language = 1;
        launch(cpp, THREADS, streams[1], value, cells.all(), counts.all(), round, plant);
        launches += 2;
        if (launches % 16 == 0 || plant) {
            CHECK(cudaDeviceSynchronize());
            seen = counts.copy();
        }
    } while (!plant && (seen.empty() || seen[FREED] < wanted));
    CHECK(cudaDeviceSynchronize());
    round.steps = 0;
    launch(rust_exchange, THREADS, streams[0], value, cells.all(), counts.all(), round);
    CHECK(cudaDeviceSynchronize());
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();

    seen = counts.copy();
    wh_heap_stats stats = heap.stats();
    std::string violations = heap.violations();
    u64 lost = launches * THREADS * STEPS - seen[FAILED] - seen[FREED] + stats.live_blocks;
    std::printf(
        "{\n  \"launches\": %llu, \"threads\": %u, \"steps\": %u, \"seconds\": %.1f,\n"
        "  \"freed\": %llu, \"freed_by_the_other_language\": %llu, \"failed_allocations\": %llu,\n"
        "  \"torn\": %llu, \"lost\": %llu, \"faults\": %llu, \"violations\": %s\n}\n",
        launches, THREADS, STEPS, seconds, seen[FREED], seen[CROSSED], seen[FAILED], seen[TORN],
        lost, static_cast<u64>(stats.faults), violations.c_str());
    return seen[TORN] != 0 || lost != 0 || stats.faults != 0 || violations != "[]";
}
