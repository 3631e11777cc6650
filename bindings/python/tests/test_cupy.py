"""CuPy without a GPU: kernels in CUDA C++ compile and link, and bad input is rejected."""

import pytest
import warpheap
from kernel_support import need, need_library

cupy = need("cupy")

from value_kernels import CODE  # noqa: E402
from warpheap import cupy as wh  # noqa: E402

KERNEL = r"""
extern "C" __device__ void* wh_malloc(void* heap, size_t size);
extern "C" __device__ void wh_free(void* heap, void* block);
template <typename T> __global__ void work(void* heap) {
    wh_free(heap, wh_malloc(heap, sizeof(T)));
}
"""


def compile_and_link(code, names):
    """What `RawModule` does, with the linker of NVIDIA's wheel in place of the driver's."""
    core = need("cuda.bindings.nvjitlink", "cuda.core")
    library = need_library(warpheap.device_library, (9, 0))
    ptx, mangled = wh._compile(code, (), names, "90")
    objects = [core.ObjectCode.from_ptx(part.encode()) for part in (ptx, library)]
    options = core.LinkerOptions(arch="sm_90")
    return core.Linker(*objects, options=options).link("cubin").code, mangled


def test_kernels_compile_and_link():
    cubin, names = compile_and_link(KERNEL, ("work<double>",))
    assert names["work<double>"].encode() in cubin and b"wh_malloc" in cubin


def test_kernels_with_the_heap_by_value_compile_and_link():
    need_library(warpheap.include_dir)
    cubin, _ = compile_and_link(CODE, ())
    for kernel in (b"fill", b"drain", b"own"):
        assert kernel in cubin
    assert b"wh_malloc_finish" in cubin and b"wh_free_finish" in cubin


def test_errors_of_the_compiler_are_raised():
    with pytest.raises(cupy.cuda.compiler.CompileException, match="nonsense"):
        wh._compile("__global__ void f() { nonsense; }", (), (), "90")


def test_bad_input_is_rejected(pool):
    with pytest.raises(TypeError, match="string of CUDA C"):
        wh.RawModule(b"bytes")
    with pytest.raises(warpheap.NotSupported, match="on a GPU"):
        wh.allocator(pool)
    with pytest.raises(TypeError, match="CachingPool was expected, not int"):
        wh.use_pool(5)


@pytest.mark.skipif(warpheap.Device.cuda_count() > 0, reason="this machine has a GPU")
def test_without_a_gpu_the_error_says_so():
    with pytest.raises(warpheap.NoDevice, match="no usable device"):
        wh.use_pool()
