"""How functions are compiled: cached on disk, without the GIL, and anew whenever any file of this package changes."""

from __future__ import annotations

import gc
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


def prepare(*functions: Callable[..., Any]) -> None:
    """Load or compile functions now, all their arguments being integers.

    Python's search for cycles of garbage rests meanwhile: compiling makes a million objects that stay, and searching
    them again and again would take a tenth of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        for function in functions:
            dispatcher = cast(Any, function)
            if not dispatcher.signatures:
                dispatcher.compile((numba.int64,) * dispatcher.py_func.__code__.co_argcount)
    finally:
        if collecting:
            gc.enable()


def helper(function: Function) -> Function:
    """Compile a function that only compiled functions call; no wrapper for Python is made."""
    options = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Function, _njit(**options)(function))
