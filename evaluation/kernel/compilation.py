"""How functions are compiled: cached on disk, without the GIL, and anew whenever any file of this package changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


#: numba keeps a function's machine code until the *file it stands in* changes, though helpers of other files and
#: their constants are compiled into it. This stamp takes the place of numba's, so that any change makes all anew.
SOURCE_STAMP = _digest()


def compiled(function: Function) -> Function:
    """Compile a function that Python calls."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        dispatcher = numba.njit(cache=True, **options)(function)
        dispatcher._cache._cache_file._source_stamp = SOURCE_STAMP
    except RuntimeError:  # no folder to write a cache to: compile in every process
        dispatcher = numba.njit(**options)(function)
    return cast(Function, dispatcher)


def helper(function: Function) -> Function:
    """Compile a function that only compiled functions call: no Python wrapper is made, and it is inlined."""
    return cast(
        Function,
        numba.njit(
            nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True
        )(function),
    )
