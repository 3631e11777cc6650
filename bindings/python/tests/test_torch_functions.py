"""The C functions for PyTorch, called by a C++ program as PyTorch calls them."""

import ctypes
import shutil
import subprocess
import sys

import pytest
import warpheap
from warpheap import _warpheap

CALLER = r"""
#include <cstdio>
#include <cstring>
#include <exception>
#include <sys/types.h>
typedef void* (*Alloc)(ssize_t, int, void*);
extern "C" int call(
    void* function, ssize_t size, int device, void** result, char* text, size_t room) {
    try {
        *result = reinterpret_cast<Alloc>(function)(size, device, nullptr);
        return 0;
    } catch (const std::exception& error) {
        std::snprintf(text, room, "%s", error.what());
        return 1;
    }
}
"""


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """Calls the allocation function. Returns the address, or the text of the C++ exception."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("caller")
    (folder / "caller.cpp").write_text(CALLER)
    library = folder / "caller.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "caller.cpp"], check=True)
    caller = ctypes.CDLL(library)
    function = ctypes.cast(ctypes.CDLL(_warpheap.__file__).warpheap_torch_alloc, ctypes.c_void_p)

    def call(size, device):
        result, text = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
        failed = caller.call(
            function, ctypes.c_ssize_t(size), device, ctypes.byref(result), text, len(text)
        )
        return text.value.decode() if failed else result.value or 0

    return call


def test_failures_are_cpp_exceptions(call):
    for _ in range(3):
        assert call(-1, 0).startswith(("no usable device", "-1 B were requested"))
        assert "no GPU -1" in call(64, -1)
        assert "no usable device" in call(64, 63)
        assert "GPU 1000 was requested, but PyTorch has at most 64" in call(64, 1000)
    assert call(0, 0) == 0


def test_a_free_never_raises(capfd):
    free = ctypes.CDLL(_warpheap.__file__).warpheap_torch_free
    free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    free(None, 64, 0, None)
    assert capfd.readouterr().err == ""
    free(0x1000, 64, 63, None)
    assert "a free by PyTorch failed: no usable device" in capfd.readouterr().err


def test_streams_of_foreign_memory_are_ignored(capfd):
    record_stream = ctypes.CDLL(_warpheap.__file__).warpheap_torch_record_stream
    record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    for pointer in (None, 0x1000, (1 << 64) - 1):
        record_stream(pointer, None)
        record_stream(pointer, 0x2000)
    assert capfd.readouterr().err == ""


USE_POOL = """
import ctypes
import sys
import types

calls, hooks = [], []


class Pluggable:
    def __init__(self, *names):
        self.names = names

    def allocator(self):
        return native


native = types.SimpleNamespace()
memory = types.SimpleNamespace(
    change_current_allocator=calls.append, CUDAPluggableAllocator=Pluggable
)
sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(memory=memory))

import warpheap
import warpheap.torch

pool = warpheap.CachingPool(warpheap.Device.cpu())
for wrong, text in (((pool,), "on the CPU"), ((pool, 5), "not int")):
    try:
        warpheap.torch.use_pool(*wrong)
    except (TypeError, warpheap.NotSupported) as error:
        assert text in str(error), error
    else:
        raise AssertionError("it was accepted")
    assert calls == []
for function in (warpheap.torch.use_pool, warpheap.torch.allocator):
    try:
        function()
    except warpheap.NotSupported as error:
        assert "Tensor.record_stream" in str(error), error
    else:
        raise AssertionError("it was accepted without a hook for record_stream")
    assert calls == []
native.set_record_stream_fn = hooks.append
warpheap.torch.use_pool()
assert [c.names[1:] for c in calls] == [("warpheap_torch_alloc", "warpheap_torch_free")]
warpheap.torch.allocator()
function = ctypes.CDLL(warpheap._warpheap.__file__).warpheap_torch_record_stream
assert hooks == [ctypes.cast(function, ctypes.c_void_p).value] * 2
"""


def test_use_pool_checks_its_arguments_before_it_changes_the_allocator():
    subprocess.run([sys.executable, "-c", USE_POOL], check=True, timeout=60)


def test_pools_on_the_cpu_are_rejected(pool):
    for function in (_warpheap.torch_check_pools, _warpheap.torch_use_pools):
        with pytest.raises(warpheap.NotSupported, match="on the CPU"):
            function([pool])
        with pytest.raises(TypeError):
            function([5])
    with pytest.raises(warpheap.NoDevice):
        _warpheap.torch_pool(1000)
