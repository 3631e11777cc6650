"""CuPy: kernels in CUDA C++ that call warpheap, and arrays with memory of a pool.

``RawModule`` and ``RawKernel`` compile CUDA C++ that includes ``warpheap.cuh``, and link the device
library::

    kernel = warpheap.cupy.RawKernel(r'''
        #include "warpheap.cuh"
        extern "C" __global__ void work(wh_heap_value heap) {
            void* block = wh_malloc(heap, 64);
            wh_free(heap, block);
        }''', "work")
    kernel((64,), (256,), (warpheap.cupy.value(heap),))

``use_pool`` makes CuPy allocate its arrays from a ``warpheap.CachingPool``.
"""

from contextlib import contextmanager
from functools import lru_cache

from warpheap._headers import include_dir
from warpheap._optional import require
from warpheap._warpheap import CachingPool, Device, device_library
from warpheap.errors import NotSupported, WrongDevice

cupy = require("cupy", "cupy-cuda13x", "warpheap.cupy")

import numpy  # noqa: E402

__all__ = ["RawKernel", "RawModule", "allocator", "use_pool", "using_pool", "value"]

# `wh_heap_value`, an argument by value.
_VALUE = numpy.dtype([("wide", numpy.uint64, 14), ("narrow", numpy.uint32, 8)], align=True)


class RawModule:
    """Kernels in CUDA C++ that call warpheap, as ``cupy.RawModule``.

    ``options`` are those of NVRTC. ``name_expressions`` names C++ templates. The module is
    compiled by the first ``get_function`` on each device.
    """

    def __init__(self, code, *, options=(), name_expressions=None):
        if not isinstance(code, str):
            raise TypeError(f"code must be a string of CUDA C++, not {type(code).__name__}")
        self.code = code
        self.options = tuple(options)
        self.name_expressions = tuple(name_expressions or ())
        self._functions = {}

    def get_function(self, name):
        """The kernel ``name``: called with the grid, the block and the arguments."""
        device = cupy.cuda.runtime.getDevice()
        function = self._functions.get((device, name))
        if function is None:
            module, names = _module(self.code, self.options, self.name_expressions, device)
            function = module.get_function(names.get(name, name))
            self._functions[device, name] = function
        return function


class RawKernel:
    """A kernel in CUDA C++ that calls warpheap, as ``cupy.RawKernel``. It is ``extern "C"``."""

    def __init__(self, code, name, options=()):
        self.name = name
        self._module = RawModule(code, options=options)

    def __call__(self, grid, block, args, *, shared_mem=0, stream=None):
        """Launches the kernel on ``stream``, or on CuPy's current stream."""
        function = self._module.get_function(self.name)
        function(grid, block, args, shared_mem=shared_mem, stream=stream)


def value(heap):
    """The handle of a ``warpheap.Heap``, for a kernel's parameter of type ``wh_heap_value``."""
    return numpy.frombuffer(heap.value, _VALUE)[0]


@lru_cache(maxsize=None)
def _module(code, options, name_expressions, device_id):
    """The loaded module for a device, and the mangled names of the expressions."""
    capability = cupy.cuda.Device(device_id).compute_capability
    ptx, names = _compile(code, options, name_expressions, capability)
    library = device_library((int(capability[:-1]), int(capability[-1])))
    link = cupy.cuda.function.LinkState()
    for part, name in ((ptx, "kernels.ptx"), (library, "warpheap.ptx")):
        # The driver reads PTX up to a zero.
        link.add_ptr_data(part.encode() + b"\0", name)
    module = cupy.cuda.function.Module()
    module.load(link.complete())
    return module, names


def _compile(code, options, name_expressions, capability):
    """Relocatable PTX, and the mangled names of the expressions."""
    options = (*options, "-rdc=true", f"-arch=compute_{capability}", *_include())
    if not any(option.startswith(("-std", "--std")) for option in options):
        options = (*options, "-std=c++17")
    # CuPy's public functions link or load what they compile.
    program = cupy.cuda.compiler._NVRTCProgram(
        code, "warpheap.cu", name_expressions=name_expressions, method="ptx"
    )
    ptx, names = program.compile(options)
    return ptx.rstrip(b"\0").decode(), names or {}


def _include():
    """The option for the headers, if this build has them. Code may declare the functions itself."""
    try:
        return (f"-I{include_dir()}",)
    except NotSupported:
        return ()


def allocator(pool):
    """An allocator for ``cupy.cuda.set_allocator``, over a ``CachingPool`` on a GPU.

    Arrays are allocated on CuPy's current stream, and freed in its order. To use an array on
    another stream, order the streams, as for CuPy's own pool. The pool keeps CuPy's stream objects
    alive.
    """
    if not isinstance(pool, CachingPool):
        raise TypeError(f"a warpheap.CachingPool was expected, not {type(pool).__name__}")
    device: Device = pool.device
    if device.ordinal is None:
        raise NotSupported("CuPy needs a pool on a GPU; create the pool on `Device.cuda()`")
    ordinal, has_several = device.ordinal, Device.cuda_count() > 1
    # Looked up once: an allocation takes a microsecond.
    current_device, current_stream = cupy.cuda.runtime.getDevice, cupy.cuda.get_current_stream
    pointer, memory = cupy.cuda.MemoryPointer, cupy.cuda.UnownedMemory
    allocate_block = pool.allocate
    streams = {}

    def allocate(nbytes):
        current = current_device() if has_several else ordinal
        if current != ordinal:
            raise WrongDevice(
                f"CuPy's current device is GPU {current}, but the pool belongs to GPU "
                f"{ordinal}; use one pool for each device"
            )
        if nbytes == 0:
            return pointer(cupy.cuda.Memory(0), 0)
        stream = current_stream()
        raw = stream.ptr
        if raw not in streams:
            # The object lives as long as this function.
            streams[raw] = stream
        block = allocate_block(nbytes, raw, 512)
        return pointer(memory(block.ptr, nbytes, block, ordinal), 0)

    return allocate


def use_pool(pool=None):
    """Makes CuPy allocate all arrays from ``pool``, a new one by default. Returns the pool."""
    if pool is None:
        has_several = Device.cuda_count() > 1
        pool = CachingPool(Device.cuda(cupy.cuda.runtime.getDevice() if has_several else 0))
    cupy.cuda.set_allocator(allocator(pool))
    return pool


@contextmanager
def using_pool(pool):
    """Makes this thread allocate CuPy's arrays from ``pool`` within a ``with`` block."""
    with cupy.cuda.using_allocator(allocator(pool)):
        yield pool
