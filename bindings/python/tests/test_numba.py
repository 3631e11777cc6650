"""Kernels of Numba, compiled and linked without a GPU."""

from types import SimpleNamespace

import pytest
import warpheap
from kernel_support import need, need_library

np = need("numpy")
# Numba without numba-cuda lacks the second one.
numba_cuda = need("numba.cuda.np.numpy_support", "numba.cuda")

from numba import types  # noqa: E402
from warpheap import numba as wh  # noqa: E402

CAPABILITY = (9, 0)


@pytest.fixture(autouse=True)
def a_gpu_to_compile_for(monkeypatch):
    """Device functions ask for the current GPU, even if only PTX is wanted."""
    device = SimpleNamespace(compute_capability=CAPABILITY)
    monkeypatch.setattr("numba.cuda.dispatcher.get_current_device", lambda: device)


def ptx_of(kernel, *arguments):
    return numba_cuda.compile_ptx(
        kernel, types.void(*arguments), device=False, cc=CAPABILITY, abi="numba"
    )[0]


def every_function(heap, arena, blocks, out):
    i = numba_cuda.grid(1)
    mask = numba_cuda.activemask()
    block = wh.malloc(heap, 16)
    if block != 0:
        values = wh.as_array(block, (2, 2), np.int32)
        values[0, 1] = i
        rest = wh.as_array(block + 8, 2, np.float32)
        rest[1] = 0.5
        out[i] = values[0, 1] + rest[1]
    block = wh.realloc(heap, block, 2 * wh.usable_size(heap, block))
    wh.free(heap, block)
    wh.free(heap, wh.aligned_alloc(heap, 64, 100))
    wh.free(heap, wh.calloc(heap, 4, 4))
    wh.free_warp(heap, mask, wh.malloc_warp(heap, mask, 64))
    wh.free_block(heap, wh.malloc_block(heap, 64))
    wh.bump_alloc(arena, 8)
    wh.bump_aligned_alloc(arena, 64, 8)
    wh.freelist_free(blocks, wh.freelist_alloc(blocks))


def every_ptx():
    return ptx_of(every_function, types.int64, types.int64, types.int64, types.float64[::1])


def test_every_function_is_declared_as_the_library_defines_it():
    library = need_library(warpheap.device_library, CAPABILITY)

    def signature(ptx, keyword, name):
        """The types of result and parameters."""
        begin = ptx.index(f" {name}\n")
        result = ptx[ptx.rindex(keyword, 0, begin) : begin]
        parameters = ptx[begin : ptx.index(")", begin)]

        def kinds(text):
            return [word for word in text.split() if word in (".b32", ".b64")]

        return kinds(result), kinds(parameters)

    kernel = every_ptx()
    declared = [
        line.split()[-1] for line in kernel.splitlines() if line.startswith(".extern .func")
    ]
    names = [name for name in declared if name.startswith("wh_")]
    assert len(names) == len(wh.__all__) - 2, names
    for name in names:
        assert signature(kernel, ".extern .func", name) == signature(
            library.replace(f" {name}(", f" {name}\n("), ".visible .func", name
        ), name


def test_kernels_link_with_the_library():
    core = need("cuda.bindings.nvjitlink", "cuda.core")
    library = need_library(warpheap.device_library, CAPABILITY).encode()
    objects = [core.ObjectCode.from_ptx(ptx) for ptx in (every_ptx().encode(), library)]
    options = core.LinkerOptions(arch="sm_90")
    assert len(core.Linker(*objects, options=options).link("cubin").code) > 10_000


def test_wrong_arguments_are_errors_of_the_compiler():
    from numba.core.errors import TypingError

    def no_heap(out):
        out[0] = wh.malloc(16)

    with pytest.raises(TypingError):
        ptx_of(no_heap, types.int64[::1])


def test_as_array_needs_a_kernel():
    with pytest.raises(TypeError, match="only be called in kernels"):
        wh.as_array(0, 1, np.int32)
