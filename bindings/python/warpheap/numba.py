"""Device functions for kernels of numba-cuda: ``malloc``, ``free`` and the others of warpheap.

Numba links the device library to each kernel that calls them. The first argument is ``handle`` of
a ``warpheap.Heap``, ``Bump`` or ``FreeList`` on the same GPU, which must stay open until the kernel
has ended. Addresses and sizes are ``int64``; 0 is null. ``as_array`` gives access to a block::

    @cuda.jit
    def kernel(heap, out):
        i = cuda.grid(1)
        block = malloc(heap, 16)
        if block != 0:
            values = as_array(block, 4, np.int32)
            values[0] = i
            out[i] = values[0]
            free(heap, block)

    with warpheap.Heap(64 << 20) as heap:
        kernel[64, 256](heap.handle, out)
        cuda.synchronize()
"""

from warpheap._optional import require
from warpheap._warpheap import device_library

require("numba.cuda.np.numpy_support", "numba-cuda[cu13]", "warpheap.numba")

from llvmlite import ir  # noqa: E402
from numba import cuda, types  # noqa: E402
from numba.cuda import cgutils  # noqa: E402
from numba.cuda.extending import intrinsic, overload  # noqa: E402
from numba.cuda.np.numpy_support import carray  # noqa: E402

__all__ = [
    "LIBRARY",
    "aligned_alloc",
    "as_array",
    "bump_aligned_alloc",
    "bump_alloc",
    "calloc",
    "free",
    "free_block",
    "free_warp",
    "freelist_alloc",
    "freelist_free",
    "malloc",
    "malloc_block",
    "malloc_warp",
    "realloc",
    "usable_size",
]


class _DeviceLibrary(cuda.PTXSource):
    """The device library for the GPU that is current when a kernel is linked."""

    default_name = "warpheap.ptx"

    def __init__(self):
        super().__init__(None)

    @property
    def data(self):
        capability = cuda.get_current_device().compute_capability
        return device_library(tuple(capability)).encode()


#: The device library, for ``link=`` of own declarations.
LIBRARY = _DeviceLibrary()


def _declare(name, signature, doc):
    function = cuda.declare_device(f"wh_{name}", signature, link=LIBRARY, abi="c")
    function.__doc__ = doc
    return function


def _procedure(name, *arguments, doc):
    # A declaration with the C ABI would give the function a result, which it does not have.
    signature = types.void(*arguments)

    def generate(context, builder, signature, values):
        kinds = [context.get_value_type(argument) for argument in arguments]
        kind = ir.FunctionType(ir.VoidType(), kinds)
        function = cgutils.get_or_insert_function(builder.module, kind, f"wh_{name}")
        builder.call(function, values)
        context.active_code_library.add_linking_file(LIBRARY)
        return context.get_dummy_value()

    def of_two(typing_context, pool, block):
        return signature, generate

    def of_three(typing_context, pool, mask, block):
        return signature, generate

    function = intrinsic(of_two if len(arguments) == 2 else of_three)
    function.__doc__ = doc
    return function


malloc = _declare(
    "malloc",
    "int64(int64, int64)",
    "malloc(heap, size): allocates ``size`` bytes, aligned to 16. 0 if the heap is out of memory.",
)
aligned_alloc = _declare(
    "aligned_alloc",
    "int64(int64, int64, int64)",
    "aligned_alloc(heap, align, size): as ``malloc``, aligned to a power of two up to 2 MiB.",
)
calloc = _declare(
    "calloc",
    "int64(int64, int64, int64)",
    "calloc(heap, count, size): allocates ``count * size`` bytes of zeros.",
)
realloc = _declare(
    "realloc",
    "int64(int64, int64, int64)",
    "realloc(heap, block, size): resizes a block; its contents stay. 0 if that is not possible.",
)
free = _procedure(
    "free",
    types.int64,
    types.int64,
    doc="free(heap, block): frees a block. Ignores 0.",
)
usable_size = _declare(
    "usable_size",
    "int64(int64, int64)",
    "usable_size(heap, block): the bytes of a live block, at least the requested size.",
)
malloc_warp = _declare(
    "malloc_warp",
    "int64(int64, uint32, int64)",
    "malloc_warp(heap, mask, size): one block for all lanes of ``mask``, which make this call.",
)
free_warp = _procedure(
    "free_warp",
    types.int64,
    types.uint32,
    types.int64,
    doc="free_warp(heap, mask, block): frees a block once for all lanes of ``mask``.",
)
malloc_block = _declare(
    "malloc_block",
    "int64(int64, int64)",
    "malloc_block(heap, size): one block for the thread block. All of its threads call it.",
)
free_block = _procedure(
    "free_block",
    types.int64,
    types.int64,
    doc="free_block(heap, block): frees a block once for the thread block.",
)
bump_alloc = _declare(
    "bump_alloc",
    "int64(int64, int64)",
    "bump_alloc(arena, size): allocates from an arena, aligned to 16. 0 if it is out of memory.",
)
bump_aligned_alloc = _declare(
    "bump_aligned_alloc",
    "int64(int64, int64, int64)",
    "bump_aligned_alloc(arena, align, size): as ``bump_alloc``, aligned to a power of two.",
)
freelist_alloc = _declare(
    "freelist_alloc",
    "int64(int64)",
    "freelist_alloc(list): allocates a block of a free list. 0 if all are allocated.",
)
freelist_free = _procedure(
    "freelist_free",
    types.int64,
    types.int64,
    doc="freelist_free(list, block): frees a block of a free list. Ignores 0.",
)


@intrinsic
def _pointer(typing_context, address):
    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


def as_array(address, shape, dtype):
    """An array of ``shape``, a number or a tuple, at an address, such as that of a block.

    Nothing is checked: the block must have room for the array, and must not be 0.
    """
    raise TypeError("warpheap.numba.as_array can only be called in kernels of Numba")


# Inlined, so that it costs no call.
@overload(as_array, inline="always")
def _as_array(address, shape, dtype):
    def array(address, shape, dtype):
        return carray(_pointer(address), shape, dtype)

    return array
