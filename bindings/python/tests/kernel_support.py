"""What the tests of kernels need. ``WARPHEAP_REQUIRE_KERNELS=1`` makes a skip a failure."""

import importlib
import os

import pytest
import warpheap


def _is_set(*names):
    return any(os.environ.get(name) == "1" for name in names)


def need(*modules):
    """Imports the modules and returns the last. Skips the test or the file without them."""
    for name in modules:
        try:
            found = importlib.import_module(name)
        except ImportError as error:
            if _is_set("WARPHEAP_REQUIRE_KERNELS"):
                raise
            pytest.skip(f"{name} cannot be imported: {error}", allow_module_level=True)
    return found


def need_library(function, *arguments):
    """Calls ``device_library`` or ``include_dir``. Skips the test if there is no device library.

    With ``WARPHEAP_REQUIRE_KERNELS=1``, only a build without a compiler for kernels may lack it;
    with ``WARPHEAP_REQUIRE_COMPILER=1``, none.
    """
    try:
        return function(*arguments)
    except warpheap.NotSupported as error:
        lacks_compiler = "no compiler for kernels" in str(error)
        if _is_set("WARPHEAP_REQUIRE_COMPILER"):
            raise
        if _is_set("WARPHEAP_REQUIRE_KERNELS") and not lacks_compiler:
            raise
        pytest.skip(str(error))
