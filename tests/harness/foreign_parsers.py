"""Parsers of another package, good and bad.

Written to a folder and imported from there, as an installed one is.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NAME: Final = "strange_parsers"

MODULE: Final = '''
import ctypes, os, sys, time

from crawler.api import Link, Parsed, Unreadable


class Notes:
    """Takes a type that no other parser takes; each line is a link."""

    name = "notes"
    types = frozenset({"application/x-notes"})
    inline_max_bytes = 1000

    def parse(self, source):
        lines = source.body.decode().split()
        return Parsed(title=str(os.getpid()), links=tuple(Link(line) for line in lines))


class Apart(Notes):
    """Does what its body says."""

    name = "apart"
    inline_max_bytes = 0
    had = 0

    def parse(self, source):
        self.had += 1
        getattr(self, source.body.decode().partition(" ")[0])()
        return Parsed(title=str(os.getpid()), text=str(self.had))

    def good(self):
        pass

    def slow(self):
        time.sleep(600)

    def waits(self):
        time.sleep(1)

    def busy(self):
        while True:
            pass

    def hungry(self):
        self.held = [bytes(1 << 20) for _ in range(1 << 14)]

    def crash(self):
        ctypes.string_at(0)

    def leave(self):
        os._exit(7)

    def deep(self):
        self.deep()

    def wrong(self):
        raise KeyError("not this time")

    def refuse(self):
        raise Unreadable("not for me")

    def prints(self):
        print("x" * 100_000, flush=True)
        os.write(1, b"\\xff" * 1000)
        os.write(2, b"noise")

    def forge(self):
        for descriptor in range(3, 20):
            try:
                os.write(descriptor, b"\\xff" * 100)
            except OSError:
                pass


class Talkative(Notes):
    name = "talkative"
    inline_max_bytes = 0

    def parse(self, source):
        links = (Link(f"/{number}" + "y" * 90) for number in range(60_000))
        return Parsed(title="t" * 9_999, text="x" * 9_000_000, links=tuple(links))


class Wordless(Notes):
    def parse(self, source):
        return None


class Html(Notes):
    """Takes a type that we take too."""

    types = frozenset({"text/html"})


class Needs(Notes):
    def __init__(self, something):
        pass


class Untyped(Notes):
    types = frozenset({"HTML"})


class Nameless(Notes):
    name = "Two words"


class Limitless(Notes):
    inline_max_bytes = None


class Later(Notes):
    async def parse(self, source):
        return Parsed()


class Unequal(Notes):
    """Not hashable."""

    def __eq__(self, other):
        return False


def function():
    pass


def local():
    class Hidden(Notes):
        pass

    return Hidden


Local = local()
'''

METADATA: Final = "Metadata-Version: 2.1\nName: strange-parsers\nVersion: 1.0\n"


@contextmanager
def foreign_parsers(folder: Path, entry_points: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the name of the package, which can be imported meanwhile. *entry_points*: entry points
    of `crawler.parsers` by name; with them the package looks installed."""
    (folder / f"{NAME}.py").write_text(MODULE)
    (folder / "strange_broken.py").write_text("raise RuntimeError('on import')\n")
    if entry_points is not None:
        info = folder / "strange_parsers-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(METADATA)
        rows = "".join(f"{name} = {path}\n" for name, path in entry_points.items())
        (info / "entry_points.txt").write_text(f"[crawler.parsers]\n{rows}")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield NAME
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(NAME, None)
