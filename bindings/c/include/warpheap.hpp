// The owners of pools for C++ programs on the host: what `warpheap.h` has, with exceptions and
// destructors. Link libwarpheap. C++17.
//
//     warpheap::heap heap(std::uint64_t{1} << 30);    // on the current CUDA context
//     kernel<<<blocks, threads>>>(heap.value());
//     std::puts(heap.report().c_str());
#ifndef WARPHEAP_HPP
#define WARPHEAP_HPP

#include "warpheap.h"
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace warpheap {

// A failed call: its status and its text.
class error : public std::runtime_error {
public:
    explicit error(wh_status status) : std::runtime_error(wh_last_error()), status_(status) {}
    wh_status status() const noexcept { return status_; }

private:
    wh_status status_;
};

// Throws `error` unless the status is `WH_OK`.
inline void check(wh_status status) {
    if (status != WH_OK) {
        throw error(status);
    }
}

namespace detail {

// The text that a function returns for `wh_string_free`.
template <class Call> std::string text(Call call) {
    char *text = nullptr;
    check(call(&text));
    std::string copy(text);
    check(wh_string_free(text));
    return copy;
}

// The only owner of a pool. It can be moved, not copied.
template <class Owner, class Handle, wh_status (*Destroy)(Owner),
          wh_status (*Find)(Owner, Handle **)>
class pool {
public:
    pool(pool &&other) noexcept : owner_(std::exchange(other.owner_, Owner{})) {}
    pool &operator=(pool &&other) noexcept {
        std::swap(owner_, other.owner_);
        return *this;
    }
    // A failure is not reported: the pool was destroyed by its id.
    ~pool() {
        if (owner_.id != 0) {
            static_cast<void>(Destroy(owner_));
        }
    }

    // The argument for kernels.
    Handle *handle() const {
        Handle *handle = nullptr;
        check(Find(owner_, &handle));
        return handle;
    }
    // The owner, for the functions of `warpheap.h`.
    Owner owner() const noexcept { return owner_; }

protected:
    pool() = default;
    Owner owner_{};
};

} // namespace detail

// A heap: any size, freed by any thread.
class heap : public detail::pool<wh_heap_owner, wh_heap, wh_heap_destroy, wh_heap_handle> {
public:
    explicit heap(std::uint64_t bytes, wh_device device = {}) {
        wh_heap_options options{};
        options.struct_bytes = sizeof options;
        options.bytes = bytes;
        check(wh_heap_create(device, &options, &owner_));
    }
    heap(const wh_heap_options &options, wh_device device) {
        check(wh_heap_create(device, &options, &owner_));
    }

    // The argument for kernels in the form that is the fastest in CUDA C++.
    wh_heap_value value() const {
        wh_heap_value value{};
        check(wh_heap_get_value(owner_, &value));
        return value;
    }
    // Waits for the device, then frees all blocks.
    void reset() { check(wh_heap_reset(owner_)); }
    // Waits for the device, then returns statistics.
    wh_heap_stats stats() const {
        wh_heap_stats stats{};
        stats.struct_bytes = sizeof stats;
        check(wh_heap_get_stats(owner_, &stats));
        return stats;
    }
    // Waits for the device, then returns the violated invariants, as JSON; `[]` if there is none.
    std::string violations() const {
        std::uint64_t count = 0;
        return detail::text([&](char **text) { return wh_heap_check(owner_, &count, text); });
    }
    // What is in use, what is free, and why allocations failed.
    std::string report() const {
        return detail::text([&](char **text) { return wh_heap_report(owner_, text); });
    }
};

// An arena: freed as a whole, by a reset.
class bump : public detail::pool<wh_bump_owner, wh_bump, wh_bump_destroy, wh_bump_handle> {
public:
    explicit bump(const wh_bump_options &options, wh_device device = {}) {
        check(wh_bump_create(device, &options, &owner_));
    }
    // Waits for the device, then frees all blocks.
    void reset() { check(wh_bump_reset(owner_)); }
};

// Blocks of one size.
class freelist
    : public detail::pool<wh_freelist_owner, wh_freelist, wh_freelist_destroy, wh_freelist_handle> {
public:
    explicit freelist(const wh_freelist_options &options, wh_device device = {}) {
        check(wh_freelist_create(device, &options, &owner_));
    }
    // Waits for the device, then frees all blocks.
    void reset() { check(wh_freelist_reset(owner_)); }
};

} // namespace warpheap

#endif // WARPHEAP_HPP
