// libwarpheap: heaps, arenas, free lists and caching pools of GPU memory.
//
// A host program makes a pool with a `wh_..._create` function, passes its handle, a pointer to
// device memory such as `wh_heap *`, to kernels, and destroys the pool after the last kernel. In
// kernels, the device library (`wh_device_library`) allocates from the handle.
//
//     wh_device device = {WH_CUDA, NULL};  // the current context of this thread
//     wh_heap_options options = {0};       // 0 is the default of every other field
//     options.struct_bytes = sizeof options;
//     options.bytes = (uint64_t)1 << 30;
//     wh_heap_owner owner;
//     if (wh_heap_create(device, &options, &owner) != WH_OK) {
//         fprintf(stderr, "%s\n", wh_last_error());
//     }
//
// Threads: every function may be called from any thread, also for one pool at the same time. A
// pool that is destroyed during a call of another thread is freed when that call returns.
//
// Errors: a function that returns `wh_status` returns `WH_OK`, or the cause of the failure, with a
// text in `wh_last_error`. On failure, pointers and owners that it would have returned are null.
// An owner that is null or destroyed and a null pointer are errors. Other pointers of the host must
// be valid: options, results, strings.
//
// Forks: neither threads nor CUDA survive a fork. Once the process has created a pool or asked for
// one, every function that returns `wh_status` fails with `WH_FORKED` in a forked child.
//
// Device addresses, such as blocks, are checked, never dereferenced by the host.
//
// CUDA: a context must stay alive until every pool in it is destroyed. Calls with a pool make its
// context current and restore the previous one. They may wait for the device; `wh_pool_allocate`
// and `wh_pool_deallocate` usually do not.
//
// cbindgen generates this file; do not edit it.

#ifndef WARPHEAP_H
#define WARPHEAP_H

#include <stddef.h>
#include <stdint.h>

// The value of `wh_bump_options.shards` for an arena with one counter, which wastes no memory.
#define WH_NO_SHARDS UINT32_MAX

// The outcome of a call.
enum wh_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The call succeeded.
  WH_OK = 0,
  // The owner is null, was destroyed, or never existed.
  WH_INVALID_HANDLE = 1,
  // An argument or an option is invalid. The text names it and the allowed values.
  WH_INVALID_ARGUMENT = 2,
  // Out of memory or of addresses. Nothing was allocated.
  WH_OUT_OF_MEMORY = 3,
  // There is no CUDA driver, no GPU, or no current context.
  WH_NO_DEVICE = 4,
  // An object belongs to another device or context than the pool.
  WH_WRONG_DEVICE = 5,
  // No live block starts at the address: a double, foreign or interior free. Nothing was freed.
  WH_INVALID_FREE = 6,
  // The last reset of the pool failed. Reset it again, or destroy it.
  WH_NOT_RESET = 7,
  // The device, the driver or this build of the library lacks a feature.
  WH_NOT_SUPPORTED = 8,
  // The pool cannot be reset while blocks are allocated.
  WH_IN_USE = 9,
  // A call of the driver failed. The text has the call and its status.
  WH_DRIVER = 10,
  // A kernel failed, of this library or of the program, before this call or during it.
  WH_KERNEL = 11,
  // The kernels of this library could not be compiled, loaded or launched.
  WH_MODULE = 12,
  // The library panicked, which is a defect of the library.
  WH_PANIC = 13,
  // An error without a status of its own.
  WH_OTHER = 14,
  // The process was forked after its parent had made a pool. Every call fails there: threads and
  // CUDA do not survive a fork. Create pools after the fork, or start a new program.
  WH_FORKED = 15,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum wh_status wh_status;
#else
typedef int32_t wh_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Where kernels run.
enum wh_backend
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // An NVIDIA GPU.
  WH_CUDA = 0,
  // The CPU, for tests without a GPU. Its "device memory" is memory of the host.
  WH_CPU = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum wh_backend wh_backend;
#else
typedef int32_t wh_backend;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A bump arena in device memory, which kernels allocate from. A reset frees all blocks.
typedef struct wh_bump wh_bump;

// A pool of equal blocks in device memory, which kernels allocate from.
typedef struct wh_freelist wh_freelist;

// A heap in device memory, which kernels allocate from.
typedef struct wh_heap wh_heap;

// A device. `{WH_CUDA, NULL}`, all zeros, is that of the current context of the calling thread.
typedef struct wh_device {
  // A `wh_backend`.
  int32_t backend;
  // For `WH_CUDA`: a live `CUcontext`, or null for the one that is current on the calling
  // thread, such as the context of the runtime after `cudaSetDevice` or `cudaFree(0)`. For
  // `WH_CPU`: null.
  void *context;
} wh_device;

// Settings of a heap. Set all fields to 0, then `struct_bytes`, `bytes`, and others as needed.
typedef struct wh_heap_options {
  // `sizeof(wh_heap_options)`.
  size_t struct_bytes;
  // Size of the heap in bytes; its maximum if it grows.
  uint64_t bytes;
  // Initial amount of memory in bytes, at least 1 MiB; `wh_heap_grow` adds more. 0: all. Another
  // value requires a GPU with virtual memory management.
  uint64_t initial_bytes;
  // The largest size in bytes that a size class serves; larger requests take entire slabs. 0:
  // three slabs.
  uint32_t largest_class;
  // Maximum number of cursors per size class. 0: one per multiprocessor.
  uint32_t shards;
} wh_heap_options;

// A heap, as the host owns it.
typedef struct wh_heap_owner {
  // Identifies the heap; 0 is null. No id is used twice.
  uint64_t id;
} wh_heap_owner;

// The handle of a heap by value, for kernels in CUDA C++: `warpheap.cuh` inlines the common case
// of `wh_malloc` and `wh_free` for it. The words have no meaning for other code.
typedef struct wh_heap_value {
  // Addresses on the device; the last one is that of `wh_heap_handle`.
  uint64_t wide[14];
  // Sizes and counts.
  uint32_t narrow[8];
} wh_heap_value;

// Statistics of a heap, in bytes if not said otherwise. Set `struct_bytes` before the call.
typedef struct wh_heap_stats {
  // `sizeof(wh_heap_stats)`.
  size_t struct_bytes;
  // Bytes of live blocks.
  uint64_t used_bytes;
  // Bytes of memory that the heap has.
  uint64_t reserved_bytes;
  // Bytes to which the heap can grow.
  uint64_t max_bytes;
  // Bytes that can be allocated, in any number of blocks.
  uint64_t free_bytes;
  // The largest size that one allocation may get.
  uint64_t largest_free_bytes;
  // High-water mark: bytes of slabs in use at any time since the last reset.
  uint64_t high_water_bytes;
  // Number of live blocks.
  uint64_t live_blocks;
  // Number of failed allocations since the last reset, modulo 2^32.
  uint64_t failed_allocations;
  // Number of faults of kernels since the last reset; `wh_heap_faults_json` describes them.
  uint64_t faults;
  // `1 - largest_free_bytes / free_bytes`; 0 if nothing is free.
  double fragmentation;
  // Those failed allocations that gave up after many attempts, none of which proved that there
  // was no memory. Modulo 2^32.
  uint64_t contended_failures;
} wh_heap_stats;

// Settings of an arena. Set all fields to 0, then `struct_bytes`, `capacity`, and others as
// needed.
typedef struct wh_bump_options {
  // `sizeof(wh_bump_options)`.
  size_t struct_bytes;
  // Size of the arena in bytes.
  uint64_t capacity;
  // The minimum alignment and the granularity in bytes: a power of two up to 65536. 0: 16.
  uint64_t min_align;
  // Number of shards, each with its own counter. 0: one per multiprocessor, and none in arenas
  // under 16 MiB. `WH_NO_SHARDS`: none.
  uint32_t shards;
} wh_bump_options;

// A bump arena, as the host owns it.
typedef struct wh_bump_owner {
  // Identifies the arena; 0 is null. No id is used twice.
  uint64_t id;
} wh_bump_owner;

// Settings of a free list. Set all fields to 0, then `struct_bytes`, `blocks`, `block_size`, and
// `align` as needed.
typedef struct wh_freelist_options {
  // `sizeof(wh_freelist_options)`.
  size_t struct_bytes;
  // Number of blocks.
  uint64_t blocks;
  // Bytes of each block.
  uint64_t block_size;
  // The alignment of every block in bytes: a power of two up to 65536. 0: 16.
  uint64_t align;
} wh_freelist_options;

// A free list, as the host owns it.
typedef struct wh_freelist_owner {
  // Identifies the free list; 0 is null. No id is used twice.
  uint64_t id;
} wh_freelist_owner;

// Settings of a caching pool. Set all fields to 0, then `struct_bytes`, and others as needed.
typedef struct wh_pool_options {
  // `sizeof(wh_pool_options)`.
  size_t struct_bytes;
  // Limit of the memory that the pool takes from the device, in bytes. 0: the device's memory.
  uint64_t max_bytes;
  // The smallest block in bytes: a power of two from 256 to 1 MiB. 0: 512.
  uint64_t min_block;
  // The largest size in bytes that slabs serve: a power of two up to 1 MiB. 0: 64 KiB.
  uint64_t slab_limit;
  // Free memory for each stream in bytes, up to which the pool grows before it coalesces. 0: 256
  // MiB.
  uint64_t spare_bytes;
  // Size classes per doubling: 1, 2, 4, 8 or 16. 0: 1.
  uint32_t classes_per_doubling;
} wh_pool_options;

// A caching pool.
//
// A freed block is cached for the stream of its free. The next allocation of that size on this
// stream gets it at once; other streams get it after that stream has passed the point of the free.
typedef struct wh_pool {
  // Identifies the pool; 0 is null. No id is used twice.
  uint64_t id;
} wh_pool;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The name of a status, such as `"WH_OUT_OF_MEMORY"`; `"unknown status"` for another number. The
// string is static.
const char *wh_status_name(int32_t status);

// The text of the last failed call of this thread, in UTF-8; `""` if none has failed. Valid until
// the next call of this thread. A call that succeeds does not clear it.
const char *wh_last_error(void);

// The version of the library, such as `"0.1.0"`. The string is static.
const char *wh_version(void);

// Frees a string that a function of this library returned as `char *`. Does nothing for null.
// Returns `WH_INVALID_FREE` for another pointer and for a string that was freed before.
wh_status wh_string_free(char *string);

// Returns the device library for a GPU of compute capability `major.minor`: relocatable PTX, to be
// linked with the program's kernels by `nvcc`, nvJitLink or `cuLinkAddData`. The text ends with a
// byte of zero, is static, and must not be freed. `bytes` gets its length without that byte; it
// may be null.
wh_status wh_device_library(int32_t major, int32_t minor, const char **ptx, size_t *bytes);

// Creates a heap and returns its owner.
wh_status wh_heap_create(struct wh_device device,
                         const struct wh_heap_options *options,
                         struct wh_heap_owner *heap);

// Destroys a heap, after all work of its device, and frees its memory. Pending kernels may use
// the heap, later ones must not.
wh_status wh_heap_destroy(struct wh_heap_owner heap);

// Returns the heap in device memory: the argument for kernels, valid until the heap is destroyed.
wh_status wh_heap_handle(struct wh_heap_owner heap, struct wh_heap **handle);

// Returns the handle of a heap by value, valid until the heap is destroyed.
wh_status wh_heap_get_value(struct wh_heap_owner heap, struct wh_heap_value *value);

// Waits for the device, then grows the memory of a heap to at least `bytes`, up to
// `wh_heap_options.bytes`, and returns its size. `size` may be null. Later kernels can use the new
// memory, through the same handle. No kernel may use the heap during the call.
wh_status wh_heap_grow(struct wh_heap_owner heap, uint64_t bytes, uint64_t *size);

// Waits for the device, then frees all blocks of a heap and clears its faults. Blocks from before
// must not be used any more. No kernel may use the heap during the call.
wh_status wh_heap_reset(struct wh_heap_owner heap);

// Allocates a block of a heap for kernels, and waits for the device. `align` is a power of two up
// to 2 MiB; 0 stands for 16. `wh_heap_deallocate` or `wh_free` in a kernel frees the block.
//
// Launches a kernel. The first call on a GPU compiles it, which takes seconds.
wh_status wh_heap_allocate(struct wh_heap_owner heap, size_t bytes, size_t align, void **block);

// Frees a block that the host or a kernel allocated, and waits for the device. Launches a kernel,
// as `wh_heap_allocate`. No kernel may use the block any more.
wh_status wh_heap_deallocate(struct wh_heap_owner heap, void *block);

// Waits for the device, then checks all metadata of a heap. Returns the number of violated
// invariants: 0 for a heap that was used correctly. At most 256 are counted. Unless it is null,
// `json` gets their list, for `wh_string_free`:
// `[{"invariant": "I1", "found": "a text"}]`.
wh_status wh_heap_check(struct wh_heap_owner heap, uint64_t *violations, char **json);

// Waits for the device, then returns statistics of a heap. Copies its metadata to the host, about
// 1/100 of its size.
wh_status wh_heap_get_stats(struct wh_heap_owner heap, struct wh_heap_stats *stats);

// As `wh_heap_get_stats`, with all statistics, also by size class, as JSON for `wh_string_free`.
wh_status wh_heap_stats_json(struct wh_heap_owner heap, char **json);

// Waits for the device, then returns the live blocks of a heap as JSON for `wh_string_free`: their
// number, their bytes, and the first `limit` of them with address and bytes.
wh_status wh_heap_leaks_json(struct wh_heap_owner heap, size_t limit, char **json);

// Waits for the device, then returns the faults of kernels since the last reset, such as double
// frees, as JSON for `wh_string_free`: their number, and the first 64 with kind, address, thread
// and block.
wh_status wh_heap_faults_json(struct wh_heap_owner heap, char **json);

// Waits for the device, then returns a report of a heap for `wh_string_free`: what is in use, what
// is free, what holds the memory, and why allocations failed, as text of some 20 lines.
wh_status wh_heap_report(struct wh_heap_owner heap, char **text);

// Creates an arena and returns its owner.
wh_status wh_bump_create(struct wh_device device,
                         const struct wh_bump_options *options,
                         struct wh_bump_owner *bump);

// Destroys an arena, after all work of its device, and frees its memory. Pending kernels may use
// the arena, later ones must not.
wh_status wh_bump_destroy(struct wh_bump_owner bump);

// Returns the arena in device memory: the argument for kernels, valid until the arena is
// destroyed.
wh_status wh_bump_handle(struct wh_bump_owner bump, struct wh_bump **handle);

// Waits for the device, then frees all blocks of an arena. Blocks from before must not be used any
// more. No kernel may use the arena during the call.
wh_status wh_bump_reset(struct wh_bump_owner bump);

// Waits for the device, then checks the metadata of an arena. The results are those of
// `wh_heap_check`.
wh_status wh_bump_check(struct wh_bump_owner bump, uint64_t *violations, char **json);

// Waits for the device, then returns statistics of an arena as JSON for `wh_string_free`.
wh_status wh_bump_stats_json(struct wh_bump_owner bump, char **json);

// Creates a free list and returns its owner.
wh_status wh_freelist_create(struct wh_device device,
                             const struct wh_freelist_options *options,
                             struct wh_freelist_owner *freelist);

// Destroys a free list, after all work of its device, and frees its memory. Pending kernels may
// use the free list, later ones must not.
wh_status wh_freelist_destroy(struct wh_freelist_owner freelist);

// Returns the free list in device memory: the argument for kernels, valid until the free list is
// destroyed.
wh_status wh_freelist_handle(struct wh_freelist_owner freelist, struct wh_freelist **handle);

// Waits for the device, then frees all blocks of a free list and clears its faults. Blocks from
// before must not be used any more. No kernel may use the free list during the call.
wh_status wh_freelist_reset(struct wh_freelist_owner freelist);

// Waits for the device, then checks the metadata of a free list. The results are those of
// `wh_heap_check`.
wh_status wh_freelist_check(struct wh_freelist_owner freelist, uint64_t *violations, char **json);

// Waits for the device, then returns statistics of a free list as JSON for `wh_string_free`.
wh_status wh_freelist_stats_json(struct wh_freelist_owner freelist, char **json);

// Waits for the device, then returns the faults of kernels since the last reset, as
// `wh_heap_faults_json` does.
wh_status wh_freelist_faults_json(struct wh_freelist_owner freelist, char **json);

// Creates a caching pool. Null `options` stand for the defaults.
wh_status wh_pool_create(struct wh_device device,
                         const struct wh_pool_options *options,
                         struct wh_pool *pool);

// Destroys a caching pool and frees all its memory, after all pending frees. If blocks are still
// allocated, waits for the device. The streams that the pool has used must be live, except those
// that it was told to forget.
wh_status wh_pool_destroy(struct wh_pool pool);

// Allocates a block for work that is submitted to `stream` from now on. `align` is a power of two;
// 0 stands for 256. `stream` is a `CUstream` or `cudaStream_t` of the pool's context; null is the
// legacy default stream. `cudaStreamPerThread` is not supported. On the CPU, null is the default
// stream, and each other value is a stream of its own.
//
// The stream must not be capturing a graph. Call `wh_pool_forget_stream` before it is destroyed.
wh_status wh_pool_allocate(struct wh_pool pool,
                           size_t bytes,
                           size_t align,
                           void *stream,
                           void **block);

// Frees a block after the work submitted to `stream` so far, and returns at once. Work on other
// streams that uses the block must be ordered before, by an event that `stream` waits for. The
// stream may be another than that of the allocation; see `wh_pool_allocate`.
//
// A double free is an error, unless the block was allocated again in between.
wh_status wh_pool_deallocate(struct wh_pool pool, void *block, void *stream);

// Tells a pool that `stream` is about to be destroyed. Its cached blocks become available to other
// streams. Does nothing if the pool has not used the stream. No other thread may use the
// pool with this stream at the same time.
wh_status wh_pool_forget_stream(struct wh_pool pool, void *stream);

// Waits for all pending frees, then releases cached segments without live blocks to the device.
// `released`, which may be null, gets the number of their bytes.
wh_status wh_pool_trim(struct wh_pool pool, uint64_t *released);

// Returns statistics of a pool as JSON for `wh_string_free`.
wh_status wh_pool_stats_json(struct wh_pool pool, char **json);

// Returns a report of a pool for `wh_string_free`: what is in use, what is free, and what holds
// the memory, as text of some 20 lines.
wh_status wh_pool_report(struct wh_pool pool, char **text);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WARPHEAP_H */
