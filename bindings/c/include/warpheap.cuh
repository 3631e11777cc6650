// warpheap in kernels: malloc and free of a heap, an arena and a free list, for CUDA C++.
//
// The functions are in warpheap's device library, which is linked with the kernels: by nvcc
// (`nvcc -dc` compiles the library to an object file, and kernels are compiled with `-rdc=true`),
// by nvJitLink, or by the driver (`cuLinkAddData`). The host makes the pools with `warpheap.h` and
// passes their handles to kernels:
//
//     __global__ void kernel(wh_heap_value heap) {
//         int *block = static_cast<int *>(wh_malloc(heap, 64));
//         if (block) { block[0] = 1; wh_free(heap, block); }
//     }
//
// Any thread may call the functions, from any divergent part of a warp, and may free what another
// thread or another kernel allocated. Whole warps that allocate at once are the fastest. A call
// with a null handle allocates nothing and frees nothing. C++17, or NVRTC; no other dependency.
#ifndef WARPHEAP_CUH
#define WARPHEAP_CUH

#if defined(__CUDACC_RTC__)
// As in `warpheap.h`, which NVRTC has no headers for.
typedef struct wh_heap_value {
    unsigned long long wide[14];
    unsigned int narrow[8];
} wh_heap_value;
#else
#include "warpheap.h"
#include <cstddef>
#include <new>
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define WH_DEVICE __device__
#else
// A host compiler sees declarations that only kernels can call.
#define WH_DEVICE
#endif

static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "warpheap needs 64-bit addresses");
static_assert(sizeof(unsigned int) == 4, "a mask of lanes has 32 bits");
static_assert(sizeof(wh_heap_value) == 144, "the handle of a heap has 144 bytes");

extern "C" {

// The handles: addresses in device memory, of the host's `wh_heap_handle` and its likes.
typedef struct wh_heap wh_heap;
typedef struct wh_bump wh_bump;
typedef struct wh_freelist wh_freelist;

// ---- A heap: any size, freed by any thread -----------------------------------------------------

// Allocates `size` bytes, aligned to 16. Null if `size` is 0 or the heap is out of memory.
WH_DEVICE void *wh_malloc(wh_heap *heap, size_t size);
// The same with an alignment, a power of two up to 2 MiB. Null for any other alignment.
WH_DEVICE void *wh_aligned_alloc(wh_heap *heap, size_t align, size_t size);
// Allocates `count * size` bytes of zeros. Null also if the product is too large.
WH_DEVICE void *wh_calloc(wh_heap *heap, size_t count, size_t size);
// Resizes `block`, and moves it if necessary. A null `block` is allocated; a `size` of 0 frees it
// and returns null. Null if the heap is out of memory; then `block` is unchanged.
WH_DEVICE void *wh_realloc(wh_heap *heap, void *block, size_t size);
// Frees `block`; null is ignored. An address where no live block starts is recorded as a fault,
// which the host reads (`wh_heap_faults_json`), and frees nothing.
WH_DEVICE void wh_free(wh_heap *heap, void *block);
// The usable bytes of a live block. 0 for null and for addresses outside the heap.
WH_DEVICE size_t wh_usable_size(wh_heap *heap, void *block);

// One allocation for all lanes of `mask`, which all make the call, and its free.
WH_DEVICE void *wh_malloc_warp(wh_heap *heap, unsigned int mask, size_t size);
WH_DEVICE void wh_free_warp(wh_heap *heap, unsigned int mask, void *block);
// One allocation for the thread block, of which all threads make the call, as `__syncthreads`.
WH_DEVICE void *wh_malloc_block(wh_heap *heap, size_t size);
// Allocates `size` bytes for each thread of the thread block, together. Stores the address of the
// allocation to `*whole`, a word of the calling thread, unless `whole` is null. Returns the
// thread's own part.
WH_DEVICE void *wh_malloc_block_each(wh_heap *heap, size_t size, void **whole);
// Frees an allocation of the two functions above, once for the thread block.
WH_DEVICE void wh_free_block(wh_heap *heap, void *block);

// ---- An arena: freed as a whole, by the host ---------------------------------------------------

// Allocates `size` bytes, aligned to 16. Null if `size` is 0 or the arena is exhausted.
WH_DEVICE void *wh_bump_alloc(wh_bump *arena, size_t size);
// The same with an alignment, a power of two.
WH_DEVICE void *wh_bump_aligned_alloc(wh_bump *arena, size_t align, size_t size);

// ---- A free list: blocks of one size -----------------------------------------------------------

// Allocates a block. Null if all are allocated.
WH_DEVICE void *wh_freelist_alloc(wh_freelist *list);
// Frees a block; null is ignored. Misuse is recorded as for `wh_free`.
WH_DEVICE void wh_freelist_free(wh_freelist *list, void *block);

} // extern "C"

// ---- The fast way: the handle by value ---------------------------------------------------------

// Kernels that receive the handle by value, as `wh_heap_get_value` returns it, allocate and free
// two to three times as fast: the common case is inlined, and reads the handle as it reads other
// kernel parameters. Blocks of both ways are the same. A value of zeros allocates and frees
// nothing.
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

// What is left to do after the inlined part; `rest` is 0 if nothing is.
struct wh_malloc_step {
    unsigned long long words[2], rest;
};
struct wh_free_step {
    unsigned long long words[2], rest;
};
extern "C" __device__ void *wh_malloc_finish(wh_heap *heap, size_t size, wh_malloc_step step);
extern "C" __device__ void wh_free_finish(wh_heap *heap, void *block, wh_free_step step);
#if !__has_include("warpheap_inline.cuh")
#error "warpheap_inline.cuh is missing: use the include folder that scripts/c-library.sh writes"
#endif
#include "warpheap_inline.cuh"

// The handle by address, for all other functions.
__device__ inline wh_heap *wh_heap_of(const wh_heap_value &heap) {
    return reinterpret_cast<wh_heap *>(heap.wide[13]);
}

// As the functions of these names above.
__device__ inline void *wh_malloc(const wh_heap_value &heap, size_t size) {
    wh_malloc_step step = wh_malloc_begin(heap, size);
    if (step.rest == 0) {
        return reinterpret_cast<void *>(step.words[0]);
    }
    return wh_malloc_finish(wh_heap_of(heap), size, step);
}
__device__ inline void wh_free(const wh_heap_value &heap, void *block) {
    wh_free_step step = wh_free_begin(heap, block);
    if (step.rest != 0) {
        wh_free_finish(wh_heap_of(heap), block, step);
    }
}

#endif

namespace warpheap {

// An allocator for containers in kernels (C++ named requirement *Allocator*): memory from a heap.
// If the heap is out of memory, `allocate` ends the kernel with a trap, because containers expect
// memory or an exception, and kernels have no exceptions.
template <class T> class allocator {
public:
    using value_type = T;

    WH_DEVICE explicit allocator(wh_heap *heap) noexcept : heap_(heap) {}
    template <class U> WH_DEVICE allocator(const allocator<U> &other) noexcept
        : heap_(other.heap()) {}

    WH_DEVICE T *allocate(size_t count) {
        void *block = nullptr;
        if (count <= static_cast<size_t>(-1) / 2 / sizeof(T)) {
            block = wh_aligned_alloc(heap_, alignof(T), count * sizeof(T));
        }
#if defined(__CUDA_ARCH__)
        if (block == nullptr && count != 0) {
            __trap();
        }
#endif
        return static_cast<T *>(block);
    }

    WH_DEVICE void deallocate(T *block, size_t) noexcept { wh_free(heap_, block); }

    WH_DEVICE wh_heap *heap() const noexcept { return heap_; }

    template <class U> WH_DEVICE bool operator==(const allocator<U> &other) const noexcept {
        return heap_ == other.heap();
    }
    template <class U> WH_DEVICE bool operator!=(const allocator<U> &other) const noexcept {
        return heap_ != other.heap();
    }

private:
    wh_heap *heap_;
};

// The owner of one object in a heap: destroys and frees it at the end of its scope. Null if the
// heap was out of memory. It can be moved, not copied.
template <class T> class unique {
public:
    WH_DEVICE unique() noexcept : heap_(nullptr), object_(nullptr) {}
    // Takes over an object that was allocated from `heap`.
    WH_DEVICE unique(wh_heap *heap, T *object) noexcept : heap_(heap), object_(object) {}
    WH_DEVICE unique(unique &&other) noexcept : heap_(other.heap_), object_(other.release()) {}
    WH_DEVICE ~unique() { reset(); }

    WH_DEVICE unique &operator=(unique &&other) noexcept {
        if (this != &other) {
            reset();
            heap_ = other.heap_;
            object_ = other.release();
        }
        return *this;
    }

    unique(const unique &) = delete;
    unique &operator=(const unique &) = delete;

    WH_DEVICE T *get() const noexcept { return object_; }
    WH_DEVICE T &operator*() const noexcept { return *object_; }
    WH_DEVICE T *operator->() const noexcept { return object_; }
    WH_DEVICE explicit operator bool() const noexcept { return object_ != nullptr; }

    // Gives up the object, which the caller then frees.
    WH_DEVICE T *release() noexcept {
        T *object = object_;
        object_ = nullptr;
        return object;
    }

    // Destroys and frees the object.
    WH_DEVICE void reset() noexcept {
        if (object_ != nullptr) {
            object_->~T();
            wh_free(heap_, release());
        }
    }

private:
    wh_heap *heap_;
    T *object_;
};

// Allocates memory for a `T` and constructs it there. The result is null if the heap is out of
// memory; then nothing is constructed.
template <class T, class... Args> WH_DEVICE unique<T> make_unique(wh_heap *heap, Args &&...args) {
    void *block = wh_aligned_alloc(heap, alignof(T), sizeof(T));
    if (block == nullptr) {
        return unique<T>();
    }
    return unique<T>(heap, ::new (block) T(static_cast<Args &&>(args)...));
}

} // namespace warpheap

#endif // WARPHEAP_CUH
