"""The callbacks for RMM, without RMM."""

import pytest
import warpheap
from warpheap.rmm import Callbacks, resource


def test_callbacks_allocate_and_free(pool):
    callbacks = Callbacks(pool)
    pointers = [callbacks.allocate(size, 1) for size in (1, 1000, 1 << 20)]
    assert all(pointer % 256 == 0 for pointer in pointers)
    with pytest.raises(warpheap.InvalidFree):
        callbacks.deallocate(pointers[0], 1000, 1)
    for pointer, size in zip(pointers, (1, 1000, 1 << 20), strict=True):
        callbacks.deallocate(pointer, size, 1)
    assert callbacks.allocate(0) == 0
    callbacks.deallocate(0, 0)
    assert pool.stats()["live_blocks"] == 0


def test_a_missing_rmm_is_named(pool):
    with pytest.raises(ImportError, match="warpheap.rmm.resource needs rmm"):
        resource(pool)
