"""The package itself: its names, its devices, its device library, and packages that are missing."""

import importlib.metadata
import subprocess
import sys

import pytest
import warpheap
from kernel_support import need_library

no_gpu = pytest.mark.skipif(warpheap.Device.cuda_count() > 0, reason="this machine has a GPU")


def test_every_name_is_documented_and_errors_are_errors():
    for name in warpheap.__all__:
        value = getattr(warpheap, name)
        assert value.__doc__, name
        if isinstance(value, type):
            public = [method for method in vars(value) if not method.startswith("_")]
            assert all(getattr(value, method).__doc__ for method in public), name
            if issubclass(value, Exception):
                assert issubclass(value, warpheap.Error)
    assert importlib.metadata.version("warpheap").count(".") == 2


def test_the_stub_names_what_the_module_has():
    from pathlib import Path

    from warpheap import _warpheap

    stub = Path(warpheap.__file__).with_name("_warpheap.pyi").read_text()
    for name in dir(_warpheap):
        if name.startswith("_"):
            continue
        assert f"class {name}" in stub or f"def {name}(" in stub, name
        if isinstance(value := getattr(_warpheap, name), type):
            for method in vars(value):
                assert method.startswith("__") or f"def {method}(" in stub, (name, method)


def test_devices_are_equal_to_themselves(cpu):
    assert cpu == cpu and cpu != warpheap.Device.cpu() and hash(cpu) == hash(cpu)
    assert (cpu.backend, cpu.ordinal, cpu.compute_capability) == ("cpu", None, None)
    assert cpu.info()["memory_total"] > 0 and "Device(" in repr(cpu)
    cpu.synchronize()
    assert warpheap.default_device() == warpheap.default_device()
    with warpheap.Heap(1 << 20, cpu) as heap, warpheap.CachingPool(cpu) as pool:
        assert heap.device == pool.device == cpu


def test_objects_cannot_be_built_in_other_ways():
    for kind in (warpheap.Device, warpheap.Report, warpheap.Allocation):
        with pytest.raises(TypeError):
            kind()


@no_gpu
def test_without_a_gpu_the_error_says_so():
    with pytest.raises(warpheap.NoDevice, match="no usable device"):
        warpheap.Device.cuda()
    with pytest.raises(warpheap.NoDevice):
        warpheap.Device.cuda(5)
    with pytest.raises(OverflowError):
        warpheap.Device.cuda(-1)
    assert warpheap.default_device().backend == "cpu"


def test_the_device_library_is_ptx_for_the_gpu():
    for capability, target in [((7, 0), "sm_70"), ((8, 9), "sm_80"), ((10, 0), "sm_90")]:
        ptx = need_library(warpheap.device_library, capability)
        assert f".target {target}" in ptx
        for function in ("wh_malloc", "wh_free", "wh_realloc", "wh_bump_alloc", "wh_freelist_free"):
            assert f" {function}\n" in ptx or f" {function}(" in ptx, function
    with pytest.raises(warpheap.NotSupported, match="7.0 or newer, not 5.2"):
        warpheap.device_library((5, 2))
    with pytest.raises(TypeError):
        warpheap.device_library("sm_90")


def test_headers_are_found():
    folder = need_library(warpheap.include_dir)
    with open(f"{folder}/warpheap.cuh") as header:
        assert "wh_malloc" in header.read()


@pytest.mark.parametrize(
    ("module", "needs"),
    [("cupy", "cupy"), ("torch", "torch"), ("numba", "numba.cuda.np.numpy_support")],
)
def test_a_missing_package_is_named(module, needs):
    hide = f"import sys; sys.modules[{needs.split('.')[0]!r}] = None; import warpheap.{module}"
    run = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True)
    assert run.returncode == 1
    assert f"ImportError: warpheap.{module} needs {needs}" in run.stderr, run.stderr
    assert "pip install" in run.stderr


def test_importing_the_package_imports_no_other():
    others = {"numpy", "numba", "cupy", "torch", "rmm"}
    show = f"import sys, warpheap; print(sorted({others} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
