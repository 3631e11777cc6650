"""RMM: a memory resource over a pool.

``resource(pool)`` is an ``rmm.mr.CallbackMemoryResource``. ``allocate`` and ``deallocate`` of
``Callbacks`` have the signatures that RMM and similar libraries expect, and do not need RMM.
"""

from warpheap._optional import require

__all__ = ["Callbacks", "resource"]

#: The alignment that RMM promises.
_ALIGN = 256


class Callbacks:
    """The two functions of an allocator, over a ``CachingPool`` or a ``BlockPool``.

    Streams are integers, or objects with ``__cuda_stream__``, as for the pools.
    """

    def __init__(self, pool):
        self.pool = pool

    def allocate(self, nbytes, stream=0):
        """Allocates ``nbytes`` on ``stream`` and returns the address: 0 for no bytes."""
        if nbytes == 0:
            return 0
        return self.pool.allocate_raw(nbytes, stream, _ALIGN)

    def deallocate(self, ptr, nbytes, stream=0):
        """Frees memory of ``allocate``, in the order of ``stream``."""
        if nbytes > 0:
            self.pool.deallocate_raw(ptr, nbytes, stream, _ALIGN)


def resource(pool):
    """A memory resource for ``rmm.mr.set_current_device_resource``."""
    rmm = require("rmm", "rmm-cu13", "warpheap.rmm.resource")
    callbacks = Callbacks(pool)
    return rmm.mr.CallbackMemoryResource(callbacks.allocate, callbacks.deallocate)
