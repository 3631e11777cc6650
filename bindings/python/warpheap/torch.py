"""PyTorch: tensors on GPUs, with memory of warpheap's pools.

``use_pool`` must be called before PyTorch allocates its first tensor on a GPU::

    import torch, warpheap.torch
    warpheap.torch.use_pool()
    x = torch.zeros(1024, device="cuda")
    print(warpheap.torch.pool().report())

A failed allocation raises ``RuntimeError`` with warpheap's message. Memory is freed in the order of
the stream that it was allocated on. After ``Tensor.record_stream(other)``, it is reused only after
the work that ``other`` had at the free. Graph captures are not supported: they fail. PyTorch's own
statistics and snapshots do not see these pools.
"""

import ctypes

from warpheap import _warpheap
from warpheap._optional import require
from warpheap._warpheap import CachingPool
from warpheap.errors import NotSupported

torch = require("torch", "torch", "warpheap.torch")

__all__ = ["allocator", "pool", "use_pool"]


def allocator():
    """The ``CUDAPluggableAllocator``, for ``torch.cuda.memory.change_current_allocator``.

    Raises ``NotSupported`` if this PyTorch cannot tell an allocator of ``Tensor.record_stream``.
    """
    pluggable = torch.cuda.memory.CUDAPluggableAllocator(
        _warpheap.__file__, "warpheap_torch_alloc", "warpheap_torch_free"
    )
    set_record_stream = getattr(pluggable.allocator(), "set_record_stream_fn", None)
    if set_record_stream is None:
        raise NotSupported(
            "this PyTorch does not tell an allocator of Tensor.record_stream, so that memory would "
            "be reused too early; install a newer PyTorch"
        )
    function = ctypes.CDLL(_warpheap.__file__).warpheap_torch_record_stream
    set_record_stream(ctypes.cast(function, ctypes.c_void_p).value)
    return pluggable


def use_pool(*pools):
    """Makes PyTorch allocate from ``pools``, at most one for each GPU.

    GPUs without one get a pool with the default settings when PyTorch first uses them. If the call
    raises, nothing was changed, and it may be repeated.
    """
    for chosen in pools:
        if not isinstance(chosen, CachingPool):
            raise TypeError(f"a warpheap.CachingPool was expected, not {type(chosen).__name__}")
    _warpheap.torch_check_pools(pools)
    # Raises if PyTorch has already used a GPU.
    torch.cuda.memory.change_current_allocator(allocator())
    _warpheap.torch_use_pools(pools)


def pool(device=0):
    """The pool of a GPU: an ordinal or a ``torch.device``. For statistics and reports."""
    ordinal = getattr(device, "index", device)
    return _warpheap.torch_pool(0 if ordinal is None else ordinal)
