"""Compiles functions by numba, where it can be installed; else they run as they are.

Rule: only modules of compiled functions import this, and they are imported when they are first
needed: numba takes 0.4 s to import. Their functions take some seconds to compile where they are not
in the cache yet, which is beside the source, or where NUMBA_CACHE_DIR says.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

_njit: Any = None
with suppress(ImportError):
    from numba import njit as _njit

is_compiled: Final = _njit is not None


def compiled(function: Callable[..., Any]) -> Any:
    """Return *function*, compiled for the types that it is called with. It holds no GIL, and can
    make no array: those are counted at each call, which is 40 ns a tag of a page."""
    if _njit is None:
        return function
    return _njit(cache=True, nogil=True, _nrt=False)(function)


def compiled_part(function: Callable[..., Any]) -> Any:
    """Return *function*, which only compiled functions call."""
    if _njit is None:
        return function
    return _njit(_nrt=False)(function)
