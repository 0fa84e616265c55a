"""What a lean installation lacks (requirements-lean.txt), and what a crawl then leaves out.

Rule: a crawl says it once, at its start. That numba is missing says `compiling.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

from crawler.config.settings import Config

logger = logging.getLogger(__name__)

LEFT_OUT: Final[Mapping[str, str]] = MappingProxyType(
    {  # the name to import, what a crawl does without it
        "pyarrow": "no columns are written beside the archive",
        "feedparser": "feeds are archived, but not read",
        "pypdfium2": "PDFs are archived, but not read",
        "pycld2": "no languages are told",
    }
)


def without_missing_parts(config: Config) -> Config:
    """Return *config* without what cannot be done here, and log it."""
    missing = [name for name in LEFT_OUT if find_spec(name) is None]
    if missing:
        logger.warning(
            "Not installed: %s. requirements.txt has all",
            "; ".join(f"{name}: {LEFT_OUT[name]}" for name in missing),
        )
    if "pyarrow" in missing:
        config = replace(config, archive=replace(config.archive, columns=False))
    return config
