"""Compiles functions by numba, where it can be installed; else they run as they are.

Rule: only modules of compiled functions import this, and they are imported when they are first
needed: numba takes 0.4 s to import. Their functions take some seconds to compile where they are not
in the cache yet, which is beside the source, or where NUMBA_CACHE_DIR says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import numpy as np

_njit: Any = None
with suppress(ImportError):
    from numba import njit as _njit

is_compiled: Final = _njit is not None

# Numbers of compiled functions that are never negative. With one signed operand numba would compute
# in floating point.
u32: Any = np.uint32 if is_compiled else int
u64: Any = np.uint64 if is_compiled else int


def compiled(function: Callable[..., Any]) -> Any:
    """Return *function*, compiled for the types that it is called with. It holds no GIL, and can
    make no array: those are counted at each call, which is 40 ns a tag of a page."""
    return _compiled(function, nogil=True)


def compiled_short(function: Callable[..., Any]) -> Any:
    """Return *function* as `compiled` does, but it keeps the GIL: of some microseconds of work it
    would take more to get it back from another thread."""
    return _compiled(function, nogil=False)


def _compiled(function: Callable[..., Any], *, nogil: bool) -> Any:
    if _njit is None:
        return function
    try:
        with _locators(function.__code__.co_filename):
            return _without_negatives(_njit(cache=True, nogil=nogil, _nrt=False)(function))
    except RuntimeError:  # there is no folder for a cache: it is compiled at each start
        return _without_negatives(_njit(nogil=nogil, _nrt=False)(function))


@contextmanager
def compile_listener(on_begin: Callable[[], None]) -> Iterator[None]:
    """Call *on_begin* each time that a function of this process, which is not in the cache, begins
    to be compiled while the block runs."""
    from numba.core.event import Listener, install_listener  # noqa: PLC0415  # as below

    class Begins(Listener):
        def on_start(self, event: object) -> None:
            on_begin()

        def on_end(self, event: object) -> None:
            pass

    with install_listener("numba:compile", Begins()):
        yield


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
    return _without_negatives(_njit(_nrt=False)(function))


def _without_negatives(dispatcher: Any) -> Any:
    """Let numba take each index as it is while it compiles this function. It would compare it with
    zero first, as array[-1] is the last element, which doubles the time of a loop over a page. With
    NUMBA_BOUNDSCHECK=1 a negative index is an error."""
    from numba.core.compiler_lock import global_compiler_lock  # noqa: PLC0415  # as above
    from numba.np import arrayobj  # noqa: PLC0415  # as above

    compile_function = dispatcher.compile

    def compile_for(signature: Any) -> Any:
        with global_compiler_lock:  # as another thread may compile a user's function
            before = arrayobj.fix_integer_index
            arrayobj.fix_integer_index = _index_as_it_is
            try:
                return compile_function(signature)
            finally:
                arrayobj.fix_integer_index = before

    dispatcher.compile = compile_for
    return dispatcher


def _index_as_it_is(context: Any, builder: Any, index_type: Any, index: Any, _: Any) -> Any:
    from numba.core.types import intp, uintp  # noqa: PLC0415  # as above

    return context.cast(builder, index, index_type, intp if index_type.signed else uintp)
