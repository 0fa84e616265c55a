"""What lies finished in a data directory: WARC files, and with each what belongs to it.

Rule: the folder is the queue, so there is no other record of it that could be lost or wrong.
What belongs together goes together, and only when none of it is open any more: companions are
finished before their WARC file, and one that is being made again needs that file to be here.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crawler.storage.warc.openfile import OPEN_SUFFIX

FOLDER: Final = "warc"
# In this order they are brought: an index or a row in the store names a WARC file that is there.
# And in this order they are removed here: a WARC file left alone would look as if it had lost its
# companions, and get others, while one of these left alone needs nothing.
SUFFIXES: Final = (".warc.gz", ".parquet", ".cdxj")


@dataclass(frozen=True, slots=True)
class Bundle:
    """One WARC file and its companions, in the order in which they go."""

    stem: str  # what their names begin with
    files: tuple[Path, ...]


def bundles(data: Path) -> list[Bundle]:
    """Those that are finished, oldest first: names begin with when they were begun."""
    found: defaultdict[str, list[Path]] = defaultdict(list)
    open_stems = set()
    for path in _files(data / FOLDER):
        name = path.name.removesuffix(OPEN_SUFFIX)
        if not name.endswith(SUFFIXES):
            continue
        found[_stem(name)].append(path)
        if path.name != name:
            open_stems.add(_stem(name))
    return [
        Bundle(stem, tuple(sorted(found[stem], key=_turn)))
        for stem in sorted(found.keys() - open_stems)
    ]


def _files(folder: Path) -> list[Path]:
    try:
        # An open file may be renamed while we look: by the name that was listed it is open.
        return [
            path
            for path in folder.iterdir()
            if path.name.endswith(OPEN_SUFFIX) or (path.is_file() and not path.is_symlink())
        ]
    except OSError:  # whoever writes there says so
        return []


def _stem(name: str) -> str:
    """x of x.warc.gz, x.parquet and x.cdxj. Host names in it hold dots too."""
    suffix = next(suffix for suffix in SUFFIXES if name.endswith(suffix))
    return name.removesuffix(suffix)


def _turn(file: Path) -> int:
    return next(n for n, suffix in enumerate(SUFFIXES) if file.name.endswith(suffix))
