// A hash table with chains of nodes in a heap: all threads insert at once, then all look up.
// docs/guide/cuda-cpp.md has the commands to build it.
#include "warpheap.cuh"
#include "warpheap.hpp"
#include <cstdio>
#include <cuda_runtime.h>

using u64 = unsigned long long;

struct Node {
    Node *next;
    u64 key, value;
};

struct Table {
    Node **buckets;
    unsigned int count;

    __device__ Node **bucket(u64 key) const {
        return buckets + (key * 0x9e3779b97f4a7c15 >> 32) % count;
    }
};

// Thread `i` inserts the key `i * i`. Counts failed allocations.
__global__ void insert(wh_heap_value heap, Table table, unsigned int keys, u64 *failures) {
    u64 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= keys) {
        return;
    }
    Node *node = static_cast<Node *>(wh_malloc(heap, sizeof(Node)));
    if (node == nullptr) {
        atomicAdd(failures, 1ull);
        return;
    }
    node->key = i * i;
    node->value = i;
    auto *head = reinterpret_cast<u64 *>(table.bucket(node->key));
    u64 old = *reinterpret_cast<volatile u64 *>(head), seen;
    do {
        seen = old;
        node->next = reinterpret_cast<Node *>(seen);
        // The node is written before another thread finds it.
        __threadfence();
        old = atomicCAS(head, seen, reinterpret_cast<u64>(node));
    } while (old != seen);
}

// Thread `i` looks up `i * i`.
__global__ void look_up(Table table, unsigned int keys, u64 *found) {
    u64 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= keys) {
        return;
    }
    for (Node *node = *table.bucket(i * i); node != nullptr; node = node->next) {
        if (node->key == i * i && node->value == i) {
            atomicAdd(found, 1ull);
            return;
        }
    }
}

// Thread `i` frees chain `i`.
__global__ void free_chains(wh_heap_value heap, Table table, u64 *longest) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= table.count) {
        return;
    }
    u64 length = 0;
    for (Node *node = table.buckets[i], *next; node != nullptr; node = next, length++) {
        next = node->next;
        wh_free(heap, node);
    }
    atomicMax(longest, length);
}

int main() try {
    constexpr unsigned int KEYS = 1 << 20, BUCKETS = 1 << 19;
    Table table{nullptr, BUCKETS};
    u64 *counts;
    if (cudaMalloc(&table.buckets, BUCKETS * sizeof(Node *)) ||
        cudaMallocManaged(&counts, 3 * sizeof(u64))) {
        std::puts("this program needs an NVIDIA GPU");
        return 1;
    }
    cudaMemset(table.buckets, 0, BUCKETS * sizeof(Node *));
    counts[0] = counts[1] = counts[2] = 0;
    warpheap::heap heap(std::uint64_t{1} << 30);
    insert<<<KEYS / 256, 256>>>(heap.value(), table, KEYS, &counts[0]);
    look_up<<<KEYS / 256, 256>>>(table, KEYS, &counts[1]);
    cudaDeviceSynchronize();
    u64 live = heap.stats().live_blocks;
    free_chains<<<BUCKETS / 256, 256>>>(heap.value(), table, &counts[2]);
    if (cudaError_t status = cudaDeviceSynchronize()) {
        std::puts(cudaGetErrorString(status));
        return 1;
    }
    std::printf("%u keys, %llu nodes, %llu found, %llu failed allocations; longest chain: %llu\n",
                KEYS, live, counts[1], counts[0], counts[2]);
    return counts[1] != KEYS || heap.stats().live_blocks != 0;
} catch (const warpheap::error &error) {
    std::puts(error.what());
    return 1;
}
