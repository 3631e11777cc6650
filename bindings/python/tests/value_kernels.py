"""Kernels in CUDA C++ that receive a heap by value."""

CODE = r"""
#include "warpheap.cuh"

struct Node {
    Node* next;
    unsigned long long size;
};

__device__ unsigned char pattern(int thread, int turn, unsigned long long at) {
    return static_cast<unsigned char>(31 * thread + 7 * turn + at);
}

// Each `step`-th thread makes a list of up to `count` blocks of 16 to 512 bytes, all bytes of
// which it writes.
extern "C" __global__ void fill(
    wh_heap_value heap, int step, int count, Node** lists, int* allocated) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Node* list = nullptr;
    int turn = 0;
    if (i % step == 0) {
        for (; turn < count; turn++) {
            unsigned long long size = 16ull << ((i + turn) % 6);
            Node* node = static_cast<Node*>(wh_malloc(heap, size));
            if (!node) break;
            node->next = list;
            node->size = size;
            unsigned char* bytes = reinterpret_cast<unsigned char*>(node);
            for (auto at = sizeof(Node); at < size; at++) bytes[at] = pattern(i, turn, at);
            list = node;
        }
    }
    lists[i] = list;
    allocated[i] = turn;
}

// Checks and frees the lists of `fill`: those of other thread blocks.
extern "C" __global__ void drain(
    wh_heap_value heap, Node** lists, const int* allocated, int* wrong) {
    int i = gridDim.x * blockDim.x - 1 - (blockIdx.x * blockDim.x + threadIdx.x);
    int turn = allocated[i];
    for (Node* node = lists[i]; node;) {
        turn--;
        unsigned long long size = 16ull << ((i + turn) % 6);
        const unsigned char* bytes = reinterpret_cast<unsigned char*>(node);
        bool right = node->size == size;
        for (auto at = sizeof(Node); at < size; at++) right &= bytes[at] == pattern(i, turn, at);
        if (!right) atomicAdd(wrong, 1);
        Node* next = node->next;
        wh_free(heap, node);
        node = next;
    }
    if (turn != 0) atomicAdd(wrong, 1);
}

struct Pair {
    long long first, second;
    long long* destroyed;
    __device__ Pair(long long first, long long second, long long* destroyed)
        : first(first), second(second), destroyed(destroyed) {}
    __device__ ~Pair() { *destroyed += 1; }
};

// Each `step`-th thread owns an object. Its sum is 3 i, and 1 more for the destructor.
extern "C" __global__ void own(wh_heap_value heap, int step, long long* sums) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    sums[i] = 0;
    if (i % step == 0) {
        auto pair = warpheap::make_unique<Pair>(wh_heap_of(heap), i, 2 * i, &sums[i]);
        if (pair) sums[i] = pair->first + pair->second;
    }
}
"""
