// Kernels in CUDA C++ that use a heap together with kernels in Rust, and the same work for timings.
// `bindings/c/device/tests/mixed/kernels` has their counterparts and describes the exchange.
#ifndef WARPHEAP_TEST_KERNELS_CUH
#define WARPHEAP_TEST_KERNELS_CUH

#include "warpheap.cuh"

using u32 = unsigned int;
using u64 = unsigned long long;

// A `DeviceSlice<u64>`, in the form in which kernels in Rust receive it.
struct slice {
    u64 *words;
    u64 count;
};

// An `ExchangeRound`.
struct exchange_round {
    u64 seed;
    u32 steps, min_bytes, max_bytes, language;
};
static_assert(sizeof(slice) == 16 && sizeof(exchange_round) == 24, "as in Rust");

// CUDA's own allocator, with the functions of a heap.
struct cuda_heap {
    __device__ static void *malloc(size_t size) { return ::malloc(size); }
    __device__ static void free(void *block) { ::free(block); }
};

// A heap of warpheap, by value: the common case is inlined.
struct warpheap_heap {
    wh_heap_value heap;
    __device__ void *malloc(size_t size) const { return wh_malloc(heap, size); }
    __device__ void free(void *block) const { wh_free(heap, block); }
};

__device__ inline u32 index() {
    return blockIdx.x * blockDim.x + threadIdx.x;
}

// The first words of `counts`: freed blocks, failed allocations, torn blocks, and blocks that were
// allocated by another language.
enum count { FREED, FAILED, TORN, CROSSED };

__device__ inline void add(slice counts, count which, u64 n) {
    if (n != 0) {
        atomicAdd(counts.words + which, n);
    }
}

// The same, by address: each call is one of the library.
struct linked_heap {
    wh_heap *heap;
    __device__ void *malloc(size_t size) const { return wh_malloc(heap, size); }
    __device__ void free(void *block) const { wh_free(heap, block); }
};

// Every thread repeatedly allocates a block, stores 8 bytes in it and frees it.
template <class Heap> __device__ void pairs(Heap heap, slice counts, u32 turns, u32 bytes) {
    u64 failures = 0;
    for (u32 turn = 0; turn < turns; turn++) {
        auto *block = static_cast<volatile u64 *>(heap.malloc(bytes));
        if (block == nullptr) {
            failures++;
            continue;
        }
        *block = static_cast<u64>(index()) << 32 | turn;
        heap.free(const_cast<u64 *>(block));
    }
    add(counts, FAILED, failures);
}

extern "C" {

__global__ void cpp_alloc(warpheap_heap heap, slice blocks, u32 bytes) {
    if (index() < blocks.count) {
        blocks.words[index()] = reinterpret_cast<u64>(heap.malloc(bytes));
    }
}

__global__ void cpp_free(warpheap_heap heap, slice blocks) {
    if (index() < blocks.count) {
        heap.free(reinterpret_cast<void *>(blocks.words[index()]));
    }
}

__global__ void cpp_pairs(warpheap_heap heap, slice counts, u32 turns, u32 bytes) {
    pairs(heap, counts, turns, bytes);
}

__global__ void linked_alloc(linked_heap heap, slice blocks, u32 bytes) {
    if (index() < blocks.count) {
        blocks.words[index()] = reinterpret_cast<u64>(heap.malloc(bytes));
    }
}

__global__ void linked_free(linked_heap heap, slice blocks) {
    if (index() < blocks.count) {
        heap.free(reinterpret_cast<void *>(blocks.words[index()]));
    }
}

__global__ void linked_pairs(linked_heap heap, slice counts, u32 turns, u32 bytes) {
    pairs(heap, counts, turns, bytes);
}

__global__ void cuda_pairs(slice counts, u32 turns, u32 bytes) {
    pairs(cuda_heap(), counts, turns, bytes);
}

// The floors: the work without an allocator.
__global__ void floor_alloc(slice blocks, u64 base, u32 bytes) {
    if (index() < blocks.count) {
        blocks.words[index()] = base + static_cast<u64>(index()) * bytes;
    }
}

__global__ void floor_free(slice blocks, u64 *sink) {
    if (index() < blocks.count && blocks.words[index()] == 1) {
        *sink = 1;
    }
}

// Runs for about `nanoseconds`, so that the launches that follow are queued when it ends.
__global__ void spin(u64 nanoseconds) {
    u64 now, end;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end));
    end += nanoseconds;
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now < end);
}

} // extern "C"

// ---- The exchange ------------------------------------------------------------------------------

constexpr u64 GOLDEN = 0x9e3779b97f4a7c15;

__device__ inline u64 absorb(u64 state, u64 word) {
    u64 x = (state + GOLDEN) ^ word;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

__device__ inline u32 below(u64 hash, u32 bound) {
    return static_cast<u32>((hash >> 32) * bound >> 32);
}

__device__ inline void fill(void *block, u32 bytes, const exchange_round &round) {
    auto *words = static_cast<volatile u64 *>(block);
    u64 word = absorb(round.seed, reinterpret_cast<u64>(block));
    words[0] = static_cast<u64>(round.language) << 32 | bytes;
    for (u32 i = 1; i < bytes / 8; i++) {
        words[i] = word += GOLDEN;
    }
}

// Whether the block contains its pattern. Stores the language that allocated it.
__device__ inline bool verify(void *block, const exchange_round &round, u32 *language) {
    auto *words = static_cast<volatile u64 *>(block);
    u64 head = words[0], word = absorb(round.seed, reinterpret_cast<u64>(block));
    u32 bytes = static_cast<u32>(head);
    *language = static_cast<u32>(head >> 32);
    if (bytes < round.min_bytes || bytes > round.max_bytes) {
        return false;
    }
    for (u32 i = 1; i < bytes / 8; i++) {
        if (words[i] != (word += GOLDEN)) {
            return false;
        }
    }
    return true;
}

// `plant`: each thread frees its first block although it passes it on.
extern "C" __global__ void cpp_exchange(warpheap_heap heap, slice cells, slice counts,
                                        exchange_round round, u32 plant) {
    u64 freed = 0, failed = 0, torn = 0, crossed = 0;
    u64 state = absorb(round.seed, index());
    for (u32 step = 0; step < round.steps; step++) {
        state = absorb(state, 0);
        u32 bytes = round.min_bytes + below(state << 32, round.max_bytes - round.min_bytes + 1);
        void *block = heap.malloc(bytes);
        if (block == nullptr) {
            failed++;
        } else {
            fill(block, bytes, round);
            if (plant != 0 && step == 0) {
                heap.free(block);
            }
        }
        // The accesses of this thread, before those of the next owner; and the reverse below.
        __threadfence();
        u64 *cell = cells.words + below(state, static_cast<u32>(cells.count));
        void *taken = reinterpret_cast<void *>(atomicExch(cell, reinterpret_cast<u64>(block)));
        __threadfence();
        if (taken != nullptr) {
            u32 language;
            bool intact = verify(taken, round, &language);
            torn += !intact;
            crossed += intact && language != round.language;
            freed++;
            heap.free(taken);
        }
    }
    add(counts, FREED, freed);
    add(counts, FAILED, failed);
    add(counts, TORN, torn);
    add(counts, CROSSED, crossed);
}

#endif
