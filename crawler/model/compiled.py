"""Compiles functions by numba, where it can be installed; else they run as they are.

Rule: only modules of compiled functions import this, and they are imported when they are first
needed: numba takes 0.4 s to import. Their functions take some seconds to compile where they are not
in the cache yet, which is beside the source, or where NUMBA_CACHE_DIR says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
    try:
        with _locators(function.__code__.co_filename):
            return _njit(cache=True, nogil=True, _nrt=False)(function)
    except RuntimeError:  # there is no folder for a cache: it is compiled at each start
        return _njit(nogil=True, _nrt=False)(function)


@contextmanager
def _locators(file: str) -> Iterator[None]:
    """Let numba find a place in its cache for a function of *file*: it looks into no eggs, in which
    scrapyd deploys a project."""
    from numba import config  # noqa: PLC0415  # only where it is installed

    settings, name = vars(config), "CACHE_LOCATOR_CLASSES"
    before = settings[name]
    if ".egg/" in file:
        settings[name] = "crawler.model.compiled_egg.EggCacheLocator"
    try:
        yield
    finally:
        settings[name] = before


def compiled_part(function: Callable[..., Any]) -> Any:
    """Return *function*, which only compiled functions call."""
    if _njit is None:
        return function
    return _njit(_nrt=False)(function)
