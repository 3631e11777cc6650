// What the programs of this folder share on the host: checked calls, launches and their times.
#ifndef WARPHEAP_TEST_HOST_HPP
#define WARPHEAP_TEST_HOST_HPP

#include "kernels.cuh"
#include "warpheap.hpp"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

[[noreturn]] inline void fail(const char *call, const char *why) {
    std::fprintf(stderr, "%s: %s\n", call, why);
    std::exit(2);
}

inline void check(const char *call, CUresult status) {
    const char *why = "unknown error";
    if (status != CUDA_SUCCESS) {
        cuGetErrorString(status, &why);
        fail(call, why);
    }
}

inline void check(const char *call, cudaError_t status) {
    if (status != cudaSuccess) {
        fail(call, cudaGetErrorString(status));
    }
}

inline void check(const char *call, wh_status status) {
    if (status != WH_OK) {
        fail(call, wh_last_error());
    }
}

#define CHECK(call) check(#call, call)

inline std::string read(const char *path) {
    std::ifstream file(path);
    if (!file) {
        fail(path, "cannot be read");
    }
    return {std::istreambuf_iterator<char>(file), {}};
}

// Zeroed words in device memory.
struct Words : slice {
    explicit Words(u64 n) : slice{nullptr, n} {
        CHECK(cudaMalloc(&words, n * sizeof(u64)));
        CHECK(cudaMemset(words, 0, n * sizeof(u64)));
    }
    ~Words() { cudaFree(words); }
    Words(const Words &) = delete;
    slice all() const { return *this; }

    std::vector<u64> copy() const {
        std::vector<u64> host(count);
        CHECK(cudaMemcpy(host.data(), words, count * sizeof(u64), cudaMemcpyDeviceToHost));
        return host;
    }
};

// A kernel that nvcc linked.
template <class Kernel> CUfunction function_of(Kernel *kernel) {
    cudaFunction_t function;
    CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void *>(kernel)));
    return reinterpret_cast<CUfunction>(function);
}

// A module that the driver links from PTX.
struct Linked {
    CUmodule module = nullptr;

    // `registers`: of each thread, at most.
    Linked(const std::vector<std::string> &texts, unsigned int registers) {
        CUlinkState link;
        std::vector<char> log(1 << 14);
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[] = {log.data(), reinterpret_cast<void *>(log.size())};
        CHECK(cuLinkCreate(2, options, values, &link));
        CUjit_option limit[] = {CU_JIT_MAX_REGISTERS};
        void *most[] = {reinterpret_cast<void *>(static_cast<size_t>(registers))};
        for (const std::string &text : texts) {
            auto *data = const_cast<char *>(text.c_str());
            if (cuLinkAddData(link, CU_JIT_INPUT_PTX, data, text.size() + 1, "ptx", 1, limit,
                              most)) {
                fail("cuLinkAddData", log.data());
            }
        }
        void *image;
        size_t bytes;
        if (cuLinkComplete(link, &image, &bytes) != CUDA_SUCCESS) {
            fail("cuLinkComplete", log.data());
        }
        CHECK(cuModuleLoadData(&module, image));
        CHECK(cuLinkDestroy(link));
    }
    Linked(const Linked &) = delete;
    ~Linked() { cuModuleUnload(module); }

    CUfunction function(const char *name) const {
        CUfunction found;
        check(name, cuModuleGetFunction(&found, module, name));
        return found;
    }
};

// The device library for this GPU.
inline std::string device_library() {
    int major, minor;
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    const char *ptx;
    size_t bytes;
    CHECK(wh_device_library(major, minor, &ptx, &bytes));
    return {ptx, bytes};
}

// Launches `threads` threads in blocks of 256.
template <class... Args>
void launch(CUfunction kernel, u32 threads, cudaStream_t stream, Args... args) {
    void *addresses[] = {&args...};
    u32 blocks = (threads + 255) / 256;
    CHECK(cuLaunchKernel(kernel, blocks, 1, 1, 256, 1, 1, 0, stream, addresses, nullptr));
}

#endif
