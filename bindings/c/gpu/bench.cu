// Times the calls of the C functions from CUDA C++ kernels, linked by nvcc and by the driver,
// beside the same kernels in Rust, CUDA's own malloc, and the kernels without an allocator.
//
// usage: bench KERNELS.ptx RUST.ptx REGISTERS: the kernels of `kernels.cuh` as relocatable PTX,
// those of `bindings/c/device/tests/mixed/kernels`, and the limit of registers for what the driver
// links. Prints JSON. Fails if an allocation failed or a block was lost.
#include "host.hpp"

constexpr u32 THREADS = 1 << 20, TURNS = 64, ROUNDS = 20, WARM_UP = 5;

struct Stream {
    cudaStream_t raw;
    cudaEvent_t begin, end;
    Stream() {
        CHECK(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking));
        CHECK(cudaEventCreate(&begin));
        CHECK(cudaEventCreate(&end));
    }

    // The time of one launch, in microseconds. The GPU is busy for 40 us before, so that it does
    // not wait for the launch.
    template <class... Args> double time(CUfunction kernel, Args... args) {
        launch(function_of(spin), 1, raw, u64{40'000});
        CHECK(cudaEventRecord(begin, raw));
        launch(kernel, THREADS, raw, args...);
        CHECK(cudaEventRecord(end, raw));
        CHECK(cudaEventSynchronize(end));
        float milliseconds;
        CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
        return milliseconds * 1e3;
    }
};

double median(std::vector<double> times) {
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
}

bool first = true;

void print(const char *name, const char *linked, u32 bytes, double us, double floor_us,
           CUfunction kernel) {
    int registers, local;
    CHECK(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel));
    CHECK(cuFuncGetAttribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel));
    std::printf(
        "%s\n    {\"name\": \"%s\", \"linked\": \"%s\", \"bytes\": %u, \"median_us\": %.3f, ",
        first ? "" : ",", name, linked, bytes, us);
    if (floor_us > 0) {
        std::printf("\"floor_us\": %.3f, ", floor_us);
    } else {
        std::printf("\"floor_us\": null, ");
    }
    std::printf("\"registers\": %d, \"local_bytes\": %d}", registers, local);
    first = false;
}

// The kernels of one language, linked in one way.
struct Kernels {
    const char *name, *linked;
    CUfunction alloc, free, pairs;
};

Stream *stream;
Words *blocks, *counts;

template <class Handle>
void bench(const Kernels &kernels, Handle heap, u32 bytes, double alloc_floor, double free_floor) {
    std::vector<double> alloc, free, pairs;
    for (u32 round = 0; round < WARM_UP + ROUNDS; round++) {
        double a = stream->time(kernels.alloc, heap, blocks->all(), bytes);
        double f = stream->time(kernels.free, heap, blocks->all());
        double p = stream->time(kernels.pairs, heap, counts->all(), TURNS, bytes);
        if (round >= WARM_UP) {
            alloc.push_back(a), free.push_back(f), pairs.push_back(p);
        }
    }
    std::string name = kernels.name;
    print((name + ": malloc").c_str(), kernels.linked, bytes, median(alloc), alloc_floor,
          kernels.alloc);
    print((name + ": free").c_str(), kernels.linked, bytes, median(free), free_floor, kernels.free);
    print((name + ": 64 pairs").c_str(), kernels.linked, bytes, median(pairs), 0, kernels.pairs);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fail("usage", "bench KERNELS.ptx RUST.ptx REGISTERS");
    }
    CHECK(cudaFree(nullptr));
    CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, size_t{1} << 30));
    u32 registers = static_cast<u32>(std::atoi(argv[3]));
    warpheap::heap heap(u64{8} << 30);
    Linked by_driver({read(argv[1]), device_library()}, registers);
    Linked rust({read(argv[2])}, 32);
    Stream own;
    Words addresses(THREADS), counters(4);
    stream = &own, blocks = &addresses, counts = &counters;

    std::printf("{\n  \"threads\": %u, \"turns\": %u, \"rounds\": %u, "
                "\"registers_of_driver_link\": %u,\n  \"figures\": [",
                THREADS, TURNS, ROUNDS, registers);
    for (u32 bytes : {16u, 64u}) {
        std::vector<double> alloc_floor, free_floor;
        for (u32 round = 0; round < WARM_UP + ROUNDS; round++) {
            alloc_floor.push_back(
                own.time(function_of(floor_alloc), addresses.all(), u64{1} << 40, bytes));
            free_floor.push_back(
                own.time(function_of(floor_free), addresses.all(), counters.words));
        }
        double a = median(alloc_floor), f = median(free_floor);
        wh_heap_value value = heap.value();
        wh_heap *address = heap.handle();
        Kernels cpp{"C++", "nvcc", function_of(cpp_alloc), function_of(cpp_free),
                    function_of(cpp_pairs)};
        bench(cpp, value, bytes, a, f);
        Kernels driver{"C++", "driver", by_driver.function("cpp_alloc"),
                       by_driver.function("cpp_free"), by_driver.function("cpp_pairs")};
        bench(driver, value, bytes, a, f);
        Kernels calls{"C++, handle by address", "nvcc", function_of(linked_alloc),
                      function_of(linked_free), function_of(linked_pairs)};
        bench(calls, address, bytes, a, f);
        Kernels in_rust{"Rust", "inlined", rust.function("rust_alloc"), rust.function("rust_free"),
                        rust.function("rust_pairs")};
        bench(in_rust, value, bytes, a, f);
    }
    // One turn: CUDA's malloc takes seconds for 64.
    CUfunction cuda = function_of(cuda_pairs);
    std::vector<double> times;
    for (u32 round = 0; round < 5; round++) {
        times.push_back(own.time(cuda, counters.all(), 1u, 16u));
    }
    print("CUDA malloc: 1 pair", "nvcc", 16, median(times), 0, cuda);
    u64 failures = counters.copy()[FAILED];
    wh_heap_stats stats = heap.stats();
    std::printf(
        "\n  ],\n  \"failed_allocations\": %llu, \"live_blocks\": %llu, \"faults\": %llu\n}\n",
        failures, static_cast<u64>(stats.live_blocks), static_cast<u64>(stats.faults));
    return failures != 0 || stats.live_blocks != 0 || stats.faults != 0;
}
