"""Imports of packages that only some modules need."""

import importlib
from types import ModuleType


def require(module: str, package: str, user: str) -> ModuleType:
    """Imports ``module``. If it is missing, the error says which ``package`` to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{user} needs {module}, which cannot be imported: {error}; "
            f"install it, for example: pip install {package}"
        ) from error
