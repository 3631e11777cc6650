"""The headers for CUDA C++ kernels."""

import shutil
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from warpheap._warpheap import inline_header
from warpheap.errors import NotSupported


@lru_cache(maxsize=None)
def _folder() -> TemporaryDirectory:
    source = Path(__file__).parent / "include"
    if not (source / "warpheap.cuh").is_file():
        raise NotSupported(f"this build has no headers: {source / 'warpheap.cuh'} does not exist")
    folder = TemporaryDirectory(prefix="warpheap-include-")
    for header in source.iterdir():
        shutil.copy(header, folder.name)
    (Path(folder.name) / "warpheap_inline.cuh").write_text(inline_header())
    return folder


def include_dir() -> str:
    """A folder with ``warpheap.cuh``, for ``-I`` of nvcc and NVRTC, until the program ends."""
    return _folder().name
