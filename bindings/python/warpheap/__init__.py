"""Heaps for GPU kernels, pools of device memory, and replays of their logs.

``Heap``, ``Bump`` and ``FreeList`` serve the threads of kernels: ``warpheap.numba`` and
``warpheap.cupy`` let Numba and CUDA C++ kernels call them. ``CachingPool`` and ``BlockPool`` serve
the host: ``warpheap.cupy``, ``warpheap.torch`` and ``warpheap.rmm`` let arrays use them. Everything
except kernels works without a GPU.
"""

from warpheap import errors
from warpheap._headers import include_dir
from warpheap._warpheap import (
    Allocation,
    BlockPool,
    Bump,
    CachingPool,
    Device,
    FreeList,
    Heap,
    Report,
    default_device,
    device_library,
    read_log,
    read_snapshot,
    replay,
)
from warpheap.errors import (
    Closed,
    Error,
    Forked,
    InvalidConfig,
    InvalidFile,
    InvalidFree,
    InvalidRequest,
    KernelFault,
    NoDevice,
    NotSupported,
    OutOfMemory,
    WrongDevice,
)

__all__ = [
    "Allocation",
    "BlockPool",
    "Bump",
    "CachingPool",
    "Closed",
    "Device",
    "Error",
    "Forked",
    "FreeList",
    "Heap",
    "InvalidConfig",
    "InvalidFile",
    "InvalidFree",
    "InvalidRequest",
    "KernelFault",
    "NoDevice",
    "NotSupported",
    "OutOfMemory",
    "Report",
    "WrongDevice",
    "default_device",
    "device_library",
    "errors",
    "include_dir",
    "read_log",
    "read_snapshot",
    "replay",
]
