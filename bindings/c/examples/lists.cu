// Linked lists: each thread builds a list of its own length, adds it up, and frees it.
// docs/guide/cuda-cpp.md has the commands to build it.
#include "warpheap.cuh"
#include "warpheap.hpp"
#include <cstdio>
#include <cuda_runtime.h>

struct Node {
    Node *next;
    unsigned int value;
};

// Thread `i` makes a list of `i % 100` nodes. The sum of its values is written to `sums`.
__global__ void lists(wh_heap_value heap, unsigned long long *sums, unsigned int threads) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= threads) {
        return;
    }
    Node *head = nullptr;
    for (unsigned int value = 0; value < i % 100; value++) {
        Node *node = static_cast<Node *>(wh_malloc(heap, sizeof(Node)));
        if (node == nullptr) {
            break;
        }
        *node = {head, value};
        head = node;
    }
    sums[i] = 0;
    while (head != nullptr) {
        Node *next = head->next;
        sums[i] += head->value;
        wh_free(heap, head);
        head = next;
    }
}

int main() try {
    constexpr unsigned int THREADS = 1 << 20;
    unsigned long long *sums;
    if (cudaMallocManaged(&sums, THREADS * sizeof *sums) != cudaSuccess) {
        std::puts("this program needs an NVIDIA GPU");
        return 1;
    }
    warpheap::heap heap(std::uint64_t{4} << 30);
    lists<<<THREADS / 256, 256>>>(heap.value(), sums, THREADS);
    if (cudaError_t status = cudaDeviceSynchronize()) {
        std::puts(cudaGetErrorString(status));
        return 1;
    }
    unsigned int wrong = 0;
    for (unsigned int i = 0; i < THREADS; i++) {
        unsigned long long n = i % 100;
        wrong += sums[i] != (n == 0 ? 0 : n * (n - 1) / 2);
    }
    wh_heap_stats stats = heap.stats();
    std::printf("%u lists, %u wrong; live blocks: %llu, failed allocations: %llu\n", THREADS, wrong,
                static_cast<unsigned long long>(stats.live_blocks),
                static_cast<unsigned long long>(stats.failed_allocations));
    return wrong != 0 || stats.live_blocks != 0;
} catch (const warpheap::error &error) {
    std::puts(error.what());
    return 1;
}
