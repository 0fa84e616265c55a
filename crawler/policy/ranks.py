"""Ranks of hosts and domains, from a file of somebody else's or of `scrapy archive graph`.

Rule: pure. Of a name 16 bytes are kept: its hash, rank and weight. Time and memory are bounded
whatever the file holds: only so many lines and bytes of it are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from crawler.model.types import ConfigError
from crawler.model.url import fetch_form, split

MOST_LINES: Final = 10_000_000
"""Lists begin with the best. These take 160 MB, while they are read 500 MB, and 12 s."""
_PIECE_BYTES: Final = 1 << 20
_LONGEST_LINE: Final = 1 << 16
_UNREADABLE: Final = 1000
"""A file of which more than one line in so many cannot be read is refused: a list typed by hand for
one mistake, a list of millions not for a few strange names."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Ranks:
    """The ranks of hosts or domains. A look-up takes 1.5 us."""

    hashes: NDArray[np.uint64]  # of the names, ascending
    ranks: NDArray[np.uint32]  # from 1, the best, in the order of the hashes
    weights: NDArray[np.float32]  # from 0 to 1, the best, in the same order
    is_reversed: bool  # whether hashed names are as org.example.www
    notes: tuple[str, ...] = ()  # what the user should know of the file

    def __len__(self) -> int:
        return len(self.hashes)

    def of_domain(self, name: str) -> int | None:
        """Return the rank of a registered domain, or of its host www; None: it has none."""
        return self._rank(name, f"www.{name}")

    def of_host(self, name: str) -> int | None:
        """Return the rank of a host. Some lists leave out www. None: it has none."""
        return self._rank(name, name.removeprefix("www."))

    def weight_of(self, name: str) -> float:
        """Return the weight of a host or a domain, of which the best has 1. 0: it has none."""
        place = self._place(name)
        if place is None:
            place = self._place(name.removeprefix("www."))
        return 0.0 if place is None else float(self.weights[place])

    def _rank(self, name: str, other: str) -> int | None:
        place = self._place(name)
        if place is None and other != name:
            place = self._place(other)
        return None if place is None else int(self.ranks[place])

    def _place(self, name: str) -> int | None:
        hashed = np.uint64(_hash((reversed_name(name) if self.is_reversed else name).encode()))
        place = int(self.hashes.searchsorted(hashed))
        return place if place < len(self.hashes) and self.hashes[place] == hashed else None


def reversed_name(name: str) -> str:
    """Return "org.example.www" for "www.example.org", and the other way round. An IP address stays
    as it is."""
    is_address = ":" in name or name.replace(".", "").isdigit()  # as it is, and reversed
    return name if is_address else ".".join(reversed(name.split(".")))


_hash = xxh3_64_intdigest

_IP: Final = rb"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[[0-9a-f:]++\]"
_NAME: Final = rb"(?:(?:[a-z0-9_-]++\.)*+[a-z][a-z0-9_-]*+|" + _IP + rb")"
_REVERSED: Final = rb"(?:[a-z][a-z0-9-]*+(?:\.[a-z0-9_-]++)*+|" + _IP + rb")"
_POSITION: Final = rb"\d{1,9}"
_NUMBER: Final = rb"(?:\d{1,30}(?:\.\d*+)?|\.\d++)(?:e[+-]?\d{1,2})?"
_APART: Final = rb"[ \t,;]++"
RANK_COLUMNS: Final = (
    *("harmonicc_pos", "harmonicc_val", "pr_pos", "pr_val", "host_rev"),
    "n_hosts",  # of domains only
)
"""Of Common Crawl's ranks, each with a # before it in the first line."""
_HEADS: Final = frozenset({b"domain", b"host", b"hostname", b"name", b"position", b"rank", b"site"})
_HEADS_OF_WEIGHTS: Final = frozenset({b"weight", b"score", b"value", b"count", b"hits"})


@dataclass(frozen=True, slots=True)
class _Form:
    """How a line is written. Groups of *row*: the name, and its position or weight if any."""

    row: re.Pattern[bytes]
    example: str
    is_reversed: bool = False


def _line(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"^" + pattern + rb"[ \t\r]*+$", re.MULTILINE)


def _by_columns(columns: Iterable[str], rest: bytes = b"") -> re.Pattern[bytes]:
    """Return the pattern of a line with tabs. Weights are PageRanks, if there are any: centralities
    are nearly the same for most names."""
    names = list(columns)
    weight = "pr_val" if "pr_val" in names else "harmonicc_val"
    wanted = {
        "harmonicc_pos": rb"(?P<position>" + _POSITION + rb")",
        weight: rb"(?P<weight>" + _NUMBER + rb")",
        "host_rev": rb"(?P<name>" + _REVERSED + rb")",
    }
    return _line(rb"\t".join(wanted.pop(name, rb"[^\t\n]*+") for name in names) + rest)


_COMMON_CRAWL: Final = "1 2.4E7 2 0.01 org.example.www 7"
_FORMS: Final = (
    _Form(_by_columns(RANK_COLUMNS[:-1], rb"(?:\t[^\n]*+)?"), _COMMON_CRAWL, True),
    _Form(
        _line(rb"(?P<position>" + _POSITION + rb")" + _APART + rb"(?P<name>" + _NAME + rb")"),
        "1,example.org",
    ),
    _Form(
        _line(rb"(?P<name>" + _NAME + rb")" + _APART + rb"(?P<weight>" + _NUMBER + rb")"),
        "example.org 12.5",
    ),
    _Form(_line(rb"(?P<name>" + _NAME + rb")()"), "example.org"),
)
_WANT: Final = (
    "want Common Crawl's ranks of hosts or domains, or lines such as 1,example.org or example.org"
    " 12.5 or, the best first, example.org"
)


def can_have_rank(name: str) -> bool:
    """Return whether a list can have *name*, in lower case: that of a host, or an IP address."""
    return len(name) <= 253 and _is_name(name.encode()) is not None


_is_name = re.compile(_NAME).fullmatch


def read_ranks(chunks: Iterable[bytes], file: str, most_lines: int = MOST_LINES) -> Ranks:
    """Read the ranks in the bytes of *file*, packed by gzip or not. Of some more than *most_lines*
    the rest is not read. Raises ConfigError, which names the file and, of a line, its number."""
    reader = _Reader(file, most_lines)
    for block in _whole_lines(_unpacked(chunks, file), file):
        if not reader.read(block):
            break
    return reader.ranks()


def _unpacked(chunks: Iterable[bytes], file: str) -> Iterator[bytes]:
    """Yield pieces of bounded size. Raises ConfigError if what is packed is damaged or cut off."""
    packed = iter(chunks)
    chunk = next(packed, b"")
    if not chunk.startswith(b"\x1f\x8b"):
        yield chunk
        yield from packed
        return
    stream = isal_zlib.decompressobj(31)
    try:
        while True:
            while chunk:
                if stream.eof:
                    stream = isal_zlib.decompressobj(31)
                yield stream.decompress(chunk, _PIECE_BYTES)
                chunk = stream.unused_data if stream.eof else stream.unconsumed_tail
            following = next(packed, None)
            if following is None:
                break
            chunk = following
        while piece := b"" if stream.eof else stream.decompress(b"", _PIECE_BYTES):
            yield piece
    except cast("type[Exception]", isal_zlib.error) as broken:
        raise ConfigError(
            f"{file} cannot be unpacked, it is damaged or cut off: {broken}"
        ) from broken
    if not stream.eof:
        raise ConfigError(
            f"{file} cannot be unpacked, it is damaged or cut off: its end is missing"
        )


def _whole_lines(pieces: Iterable[bytes], file: str) -> Iterator[bytes]:
    """Yield blocks that end with a line. Raises ConfigError for a line that does not end."""
    begun = b""
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end:
            yield begun + piece[:end]
            begun = piece[end:]
        else:
            begun += piece
            if len(begun) > _LONGEST_LINE:
                raise ConfigError(f"{file} has a line of over {_LONGEST_LINE:,} bytes; {_WANT}")
    if begun:
        yield begun + b"\n"


class _Reader:
    """Reads a file by blocks of lines, whose form is that of the first line."""

    def __init__(self, file: str, most_lines: int) -> None:
        self._file = file
        self._most_lines = most_lines
        self._form: _Form | None = None
        self._hashes: list[NDArray[np.uint64]] = []
        self._positions: list[NDArray[np.uint32]] = []
        self._weights: list[NDArray[np.float32]] = []
        self._lines = self._unreadable = 0
        self._first_unreadable = ""
        self._is_cut = False

    def read(self, block: bytes) -> bool:
        """Read whole lines, and return whether more are wanted. Raises ConfigError."""
        if self._lines >= self._most_lines:
            self._is_cut = True
            return False
        if not self._lines:
            block = block.removeprefix(b"\xef\xbb\xbf")
        block = block.lower()
        if self._form is None:
            self._form = self._form_of(block)
        lines = block.count(b"\n")
        if self._form is not None:
            rows = self._form.row.findall(block)
            if len(rows) < lines:
                rows = self._rows_one_by_one(block, self._form)
            self._keep(rows, self._form.row.groupindex)
        self._lines += lines
        if self._unreadable > _UNREADABLE:
            self._refuse_unreadable()
        return True

    def _form_of(self, block: bytes) -> _Form | None:
        """Return how the first line of *block* is written that is neither empty nor a comment."""
        for number, line in enumerate(block.split(b"\n"), self._lines + 1):
            if line.startswith(b"#") and b"host_rev" in line:
                columns = [name.strip("# \r") for name in line.decode(errors="replace").split("\t")]
                missing = {"harmonicc_pos", "harmonicc_val", "host_rev"} - set(columns)
                if missing:
                    named = ", ".join(sorted(missing))
                    raise ConfigError(f"{self._file} line {number} has no column {named}")
                return _Form(_by_columns(columns), _COMMON_CRAWL, True)
            if _is_empty(line) or _is_header(line):
                continue
            line = _in_ascii(line)  # noqa: PLW2901  # the same line
            fitting = next((form for form in _FORMS if form.row.match(line)), None)
            if fitting is None:
                raise ConfigError(f"{self._file} line {number} is {_shown(line)}; {_WANT}")
            return fitting
        return None

    def _rows_one_by_one(self, block: bytes, form: _Form) -> list[tuple[bytes, ...]]:
        rows = []
        for number, line in enumerate(block[:-1].split(b"\n"), self._lines + 1):
            if _is_empty(line) or _is_header(line):
                continue
            found = form.row.match(line) or form.row.match(_in_ascii(line))
            if found:
                rows.append(found.groups())
                continue
            self._unreadable += 1
            if not self._first_unreadable:
                want = f"want one such as {form.example!r}, as others of this file"
                self._first_unreadable = f"line {number}, {_shown(line)}; {want}"
        return rows

    def _keep(self, rows: list[tuple[bytes, ...]], groups: Mapping[str, int]) -> None:
        name = groups["name"] - 1
        hashes = [_hash(row[name]) for row in rows]
        self._hashes.append(np.array(hashes, np.uint64))
        if "position" in groups:
            place = groups["position"] - 1
            self._positions.append(np.array([int(row[place]) for row in rows], np.uint32))
        if "weight" in groups:
            place = groups["weight"] - 1
            most = float(np.finfo(np.float32).max)
            weights = [min(float(row[place]), most) for row in rows]
            self._weights.append(np.array(weights, np.float32))

    def _refuse_unreadable(self) -> None:
        if self._unreadable * _UNREADABLE > self._lines:
            raise ConfigError(
                f"{self._file}: {self._unreadable:,} of {self._lines:,} lines cannot be read. The"
                f" first is {self._first_unreadable}"
            )

    def ranks(self) -> Ranks:
        """Return what was read. Raises ConfigError if that is nothing."""
        self._refuse_unreadable()
        names = sum(map(len, self._hashes))
        if self._form is None or not names:
            raise ConfigError(f"{self._file} has no names; {_WANT}")
        hashes = np.concatenate(self._hashes)
        weights = np.concatenate(self._weights) if self._weights else None
        order = None
        if self._positions:
            order = _sorting(np.concatenate(self._positions))
        elif weights is not None:
            order = _sorting(-weights)
        self._hashes, self._positions, self._weights = [], [], []
        if order is not None:
            hashes, weights = hashes[order], None if weights is None else weights[order]
        by_hash = hashes.argsort(kind="stable")
        hashes = hashes[by_hash]
        is_first = np.ones(names, np.bool_)
        np.not_equal(hashes[1:], hashes[:-1], out=is_first[1:])
        by_hash, hashes = by_hash[is_first], hashes[is_first]  # a name's best rank is its own
        has_rank = np.zeros(names, np.bool_)
        has_rank[by_hash] = True
        ranks = has_rank.cumsum(dtype=np.uint32)[by_hash]
        weighed = (1 / ranks).astype(np.float32) if weights is None else weights[by_hash]
        best = weighed.max()
        return Ranks(
            hashes=hashes,
            ranks=ranks,
            weights=weighed / best if best else weighed,
            is_reversed=self._form.is_reversed,
            notes=tuple(self._notes(names - len(hashes))),
        )

    def _notes(self, repeated: int) -> Iterator[str]:
        if self._is_cut:
            yield f"{self._file}: only the first {self._lines:,} lines were read"
        if self._unreadable:
            yield (
                f"{self._file}: {self._unreadable:,} of {self._lines:,} lines cannot be read, and"
                f" were left out. The first is {self._first_unreadable}"
            )
        if repeated:
            yield f"{self._file}: {repeated:,} lines repeat a name, whose best rank is taken"


def _sorting(keys: NDArray[np.uint32] | NDArray[np.float32]) -> NDArray[np.int64] | None:
    """Return the order in which *keys* ascend, equal ones as they are; None: they ascend."""
    return None if (keys[1:] >= keys[:-1]).all() else keys.argsort(kind="stable")


def _is_empty(line: bytes) -> bool:
    return line.isspace() or line.startswith(b"#") or not line


def _is_header(line: bytes) -> bool:
    words = set(re.findall(rb"[^ \t\r,;]+", line))
    return bool(words & _HEADS) and words <= _HEADS | _HEADS_OF_WEIGHTS


def _in_ascii(line: bytes) -> bytes:
    """Return *line* with its names as they are in the DNS ("xn--..."), or as it is."""
    if line.isascii():
        return line
    words = line.decode(errors="replace").replace(",", " ").replace(";", " ").split()
    urls = [word if word.isascii() else fetch_form(f"http://{word}/") for word in words]
    if None in urls or len(words) > 2:
        return line
    return " ".join(url if "/" not in url else split(url).hostname for url in urls if url).encode()


def _shown(line: bytes) -> str:
    return repr(line[:80].decode(errors="replace").rstrip("\r"))
