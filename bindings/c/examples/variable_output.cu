// Output of variable length without a counting pass: each thread finds the prime factors of its
// number and keeps them in an array that grows as needed. A second kernel reads and frees the
// arrays. docs/guide/cuda-cpp.md has the commands to build it.
#include "warpheap.cuh"
#include "warpheap.hpp"
#include <cstdio>
#include <cuda_runtime.h>

// The factors of a number.
struct Factors {
    unsigned int *factors;
    unsigned int count;
};

// Appends a factor. Returns false if the heap is out of memory.
__device__ bool append(const wh_heap_value &heap, Factors &all, unsigned int factor) {
    // The block has at least the requested size: grow only if it is full.
    if (wh_usable_size(wh_heap_of(heap), all.factors) < (all.count + 1) * sizeof(unsigned int)) {
        void *grown =
            wh_realloc(wh_heap_of(heap), all.factors, 2 * (all.count + 2) * sizeof(unsigned int));
        if (grown == nullptr) {
            return false;
        }
        all.factors = static_cast<unsigned int *>(grown);
    }
    all.factors[all.count++] = factor;
    return true;
}

__global__ void factorise(wh_heap_value heap, Factors *out, unsigned int end) {
    unsigned int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= end) {
        return;
    }
    Factors all{nullptr, 0};
    unsigned int rest = n;
    bool fits = true;
    for (unsigned int p = 2; p * p <= rest && fits; p++) {
        for (; rest % p == 0 && fits; rest /= p) {
            fits = append(heap, all, p);
        }
    }
    if (rest > 1 && fits) {
        fits = append(heap, all, rest);
    }
    if (!fits) {
        wh_free(heap, all.factors);
        all = {nullptr, 0};
    }
    out[n] = all;
}

// Counts wrong results, where the factors do not multiply to the number, and all factors. Frees
// the arrays.
__global__ void consume(wh_heap_value heap, Factors *in, unsigned int end,
                        unsigned long long *counts) {
    unsigned int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n < 2 || n >= end) {
        return;
    }
    unsigned int product = 1;
    for (unsigned int i = 0; i < in[n].count; i++) {
        product *= in[n].factors[i];
    }
    atomicAdd(&counts[0], product != n);
    atomicAdd(&counts[1], in[n].count);
    wh_free(heap, in[n].factors);
}

int main() try {
    constexpr unsigned int END = 1 << 20;
    Factors *factors;
    unsigned long long *counts;
    if (cudaMalloc(&factors, END * sizeof(Factors)) ||
        cudaMallocManaged(&counts, 2 * sizeof *counts)) {
        std::puts("this program needs an NVIDIA GPU");
        return 1;
    }
    counts[0] = counts[1] = 0;
    warpheap::heap heap(std::uint64_t{1} << 30);
    factorise<<<END / 256, 256>>>(heap.value(), factors, END);
    consume<<<END / 256, 256>>>(heap.value(), factors, END, counts);
    if (cudaError_t status = cudaDeviceSynchronize()) {
        std::puts(cudaGetErrorString(status));
        return 1;
    }
    wh_heap_stats stats = heap.stats();
    std::printf("%llu factors of the numbers below %u, %llu numbers wrong; live blocks: %llu\n",
                counts[1], END, counts[0], static_cast<unsigned long long>(stats.live_blocks));
    return counts[0] != 0 || stats.live_blocks != 0;
} catch (const warpheap::error &error) {
    std::puts(error.what());
    return 1;
}
