"""CuPy without a GPU: kernels in CUDA C++ compile and link, and bad input is rejected."""

import pytest
import warpheap

cupy = pytest.importorskip("cupy")

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
    core = pytest.importorskip("cuda.core")
    pytest.importorskip("cuda.bindings.nvjitlink")
    try:
        library = warpheap.device_library((9, 0))
    except warpheap.NotSupported as error:
        pytest.skip(str(error))
    ptx, mangled = wh._compile(code, (), names, "90")
    objects = [core.ObjectCode.from_ptx(part.encode()) for part in (ptx, library)]
    options = core.LinkerOptions(arch="sm_90")
    return core.Linker(*objects, options=options).link("cubin").code, mangled


def test_kernels_compile_and_link():
    cubin, names = compile_and_link(KERNEL, ("work<double>",))
    assert names["work<double>"].encode() in cubin and b"wh_malloc" in cubin


def test_the_header_compiles():
    try:
        warpheap.include_dir()
    except warpheap.NotSupported as error:
        pytest.skip(str(error))
    code = '#include "warpheap.cuh"\nextern "C" __global__ void set(int* out) { *out = 7; }'
    assert b"set" in compile_and_link(code, ())[0]


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
