"""The exceptions. Their messages say what was asked, what there was, and what to do."""


class Error(Exception):
    """Any error of the package."""


class Closed(Error, ValueError):
    """The object was closed or freed before."""


class Forked(Error, RuntimeError):
    """The process was forked after its parent had used a device. Nothing works there."""


class InvalidConfig(Error, ValueError):
    """A setting of a pool is out of range."""


class InvalidFile(Error, ValueError):
    """A log or a snapshot cannot be read or written."""


class InvalidFree(Error, ValueError):
    """No live block starts at the address, or it has another size. Nothing was freed."""


class InvalidRequest(Error, ValueError):
    """A request that fails however much memory is free."""


class KernelFault(Error, RuntimeError):
    """A kernel failed. Its context is unusable."""


class NoDevice(Error, RuntimeError):
    """There is no such GPU, or no driver."""


class NotSupported(Error, RuntimeError):
    """The device, the driver or this build lacks the feature."""


class OutOfMemory(Error, MemoryError):
    """Out of memory. Nothing was allocated."""


class WrongDevice(Error, ValueError):
    """Objects of two devices were used together."""
