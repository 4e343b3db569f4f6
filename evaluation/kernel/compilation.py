"""How functions are compiled: cached on disk, without the GIL, and anew whenever any file of this package changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])
_njit = cast(Any, numba.njit)


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


#: numba keeps a function's machine code until the *file it stands in* changes, though helpers of other files and
#: their constants are compiled into it. This stamp takes the place of numba's, so that any change makes all anew.
SOURCE_STAMP = _digest()


def compiled(function: Function) -> Function:
    """Compile a function that Python calls. Its arguments and its result are integers."""
    options = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    try:
        dispatcher = _njit(cache=True, **options)(function)
        dispatcher._cache._cache_file._source_stamp = SOURCE_STAMP
    except RuntimeError:  # no folder to write a cache to: compile in every process
        dispatcher = _njit(**options)(function)
    return cast(Function, dispatcher)


def helper(function: Function) -> Function:
    """Compile a function that only compiled functions call; no wrapper for Python is made."""
    options = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Function, _njit(**options)(function))
