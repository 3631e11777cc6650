"""What all tests share."""

import pytest
import warpheap


@pytest.fixture
def cpu():
    """A CPU of its own for each test."""
    return warpheap.Device.cpu()


@pytest.fixture
def pool(cpu):
    """An open caching pool."""
    with warpheap.CachingPool(cpu, name="test") as pool:
        yield pool
