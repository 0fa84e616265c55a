"""Import all that a crawl imports, as far as it is installed, read the certificates of the
system and what is compiled: for processes that fork crawls."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module

from scrapy.settings import default_settings

from crawler.content.compiling import load
from crawler.download.connection import ssl_context
from crawler.model.choices import Tls


def _named() -> Iterator[str]:
    yield from ("scrapy.cmdline", "scrapy.shell", "uvloop")
    for found in pkgutil.walk_packages(["crawler"], "crawler."):
        yield found.name
    for setting in vars(default_settings).values():
        if isinstance(setting, dict):
            paths = (path for pair in setting.items() for path in pair if isinstance(path, str))
            yield from (path.rpartition(".")[0] for path in paths if path.startswith("scrapy."))


for name in _named():
    with suppress(ImportError):  # what is optional
        import_module(name)
load()
for tls in Tls:
    ssl_context(tls)
