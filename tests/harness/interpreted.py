"""Compiled modules as the interpreter runs them where numba cannot be installed."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from unittest.mock import patch

COMPILED = "crawler.model.compiled"


def interpreted(name: str) -> ModuleType:
    """Load the module of that *name* another time, with functions that are not compiled."""
    with patch.dict(sys.modules, {"numba": None}):
        plain = _loaded(COMPILED)
    with patch.dict(sys.modules, {COMPILED: plain}):
        return _loaded(name)


def _loaded(name: str) -> ModuleType:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
