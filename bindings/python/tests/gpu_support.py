"""Runs tests on a GPU, with pytest or without: ``python3 test_gpu_numba.py``."""

import importlib
import sys
import time

import warpheap


def skip(reason):
    """Skips the file. A program ends with exit status 77, so that no suite takes it for a pass."""
    if "pytest" in sys.modules:
        sys.modules["pytest"].skip(reason, allow_module_level=True)
    print(f"skipped: {reason}")
    raise SystemExit(77)


def need(*modules):
    """Skips the file without a GPU or without one of the modules."""
    if warpheap.Device.cuda_count() == 0:
        skip("this machine has no GPU")
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            skip(f"{module} cannot be imported: {error}")


def raises(kind, text, call):
    """Calls, and checks the exception."""
    try:
        call()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


def run(names):
    """Runs the tests of a file that is a program."""
    tests = [(name, test) for name, test in names.items() if name.startswith("test_")]
    for name, test in tests:
        begin = time.perf_counter()
        test()
        print(f"{name}: passed in {time.perf_counter() - begin:.2f} s")
    print(f"{len(tests)} passed, 0 failed")
