"""The headers for CUDA C++ kernels."""

from pathlib import Path

from warpheap.errors import NotSupported


def include_dir() -> str:
    """The folder of ``warpheap.cuh``, for ``-I`` of nvcc and NVRTC."""
    folder = Path(__file__).parent / "include"
    if not (folder / "warpheap.cuh").is_file():
        raise NotSupported(f"this build has no headers: {folder / 'warpheap.cuh'} does not exist")
    return str(folder)
