"""Compare large values and folders in tests, and report only the first differences.

Rule: an `assert` over whole archives makes pytest print every byte of both: use `assert_same`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest

MOST_DIFFERENCES: Final = 10
# Written by each process that opens the directory: the lock, and what RocksDB logs.
PASSING: Final = ("crawl.lock", "LOG", "LOCK")
_MOST_CHARS: Final = 300  # of one value


def assert_same(found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> None:
    """Fail unless both have the same keys with equal values; print the first ten differences."""
    __tracebackhide__ = True
    if found == expected:
        return
    lines = list(islice(_differences(found, expected, ""), MOST_DIFFERENCES + 1))
    if len(lines) > MOST_DIFFERENCES:
        lines[MOST_DIFFERENCES] = "... and more"
    pytest.fail("\n".join(["the two differ:", *lines]), pytrace=False)


def _differences(found: Any, expected: Any, path: str) -> Iterator[str]:
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        for key in [*expected, *(key for key in found if key not in expected)]:
            place = f"{path}[{key!r}]"
            if key not in found:
                yield f"missing: {place}: {_short(expected[key])}"
            elif key not in expected:
                yield f"unexpected: {place}: {_short(found[key])}"
            elif found[key] != expected[key]:
                yield from _differences(found[key], expected[key], place)
    elif isinstance(found, tuple) and isinstance(expected, tuple) and len(found) == len(expected):
        for number, (left, right) in enumerate(zip(found, expected, strict=True)):
            if left != right:
                yield from _differences(left, right, f"{path}[{number}]")
    else:
        yield f"{path}: {_short(found)}, expected {_short(expected)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}... ({len(text)} characters)"


def file_digests(folder: Path) -> dict[str, str]:
    """The name of every file below *folder* and a digest of its content."""
    return {
        str(file.relative_to(folder)): sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file() and not file.name.startswith(PASSING)
    }
