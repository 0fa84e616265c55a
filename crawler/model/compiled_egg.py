"""Where numba keeps what it compiled of a module in an egg: in the user's cache, as of a module in
a zip file.

Rule: only numba imports this, for a project that scrapyd deployed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from numba.core.caching import ZipCacheLocator


class EggCacheLocator(ZipCacheLocator):
    """Finds the place in the cache, and the state of the source."""

    @staticmethod
    def _split_zip_path(py_file: str) -> tuple[str, str]:
        egg, _, inside = py_file.partition(".egg/")
        return f"{egg}.egg", inside

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Self | None:
        """Return the place of *py_func*, or None if the user has no cache that can be written."""
        found: Any = cls(py_func, py_file)
        try:
            found.ensure_cache_path()
        except OSError:
            return None
        place: Self = found
        return place
