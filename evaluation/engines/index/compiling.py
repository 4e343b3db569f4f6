"""Compile with numba, and keep the machine code where there is a folder for it.

numba keeps it until the file of the function changes: what functions call each other stands in one file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The function as machine code, which releases the GIL and divides by zero as numpy does."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return cast(Function, numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no folder to keep machine code in: compile in every process
        return cast(Function, numba.njit(**options)(function))
