"""The seeds: a file, a list that was fetched, or the argument itself. They are read line by line,
and twice: the hosts of all seeds must be known before the first page is fetched. A list is CSV by
its name, and compressed (gzip, zstd) by its first bytes.

Rule: a source that cannot be read raises an error that names it; a bad line is skipped and counted.
Only a piece of a file and 8 bytes a host are in memory.
"""

from __future__ import annotations

import codecs
import gzip
import io
import logging
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote, urlsplit

from crawler.config.readers import WANT_CONTACT
from crawler.config.settings import Config
from crawler.engine.long_steps import long_step
from crawler.model.program import PROGRAM
from crawler.model.types import ConfigError, SeedsError
from crawler.policy.crawl_file import read_crawl
from crawler.policy.scope import SeedHosts
from crawler.policy.seed_terms import TermsOfSeeds
from crawler.policy.seeds import (
    BadLine,
    SeedLine,
    parse_plan,
    parse_seeds,
    parse_table,
    seed_url,
    split_options,
    url_of,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

logger = logging.getLogger(__name__)

MAX_BYTES: Final = 256 << 20
"""The size of a list that was fetched, which is in memory, of one from a pipe, and of a packed one
when it is unpacked: some three million seeds. A file may be longer."""
_TABLES: Final = (".csv", ".tsv")
_LISTS: Final = (".txt", ".lst")
_PLAN: Final = ".jsonl"
_GZIP: Final = b"\x1f\x8b\x08"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZIP: Final = b"PK\x03\x04"
_LOGGED_LINES: Final = 20  # bad lines logged one by one
_PIECE: Final = 1 << 16  # bytes read at once: 0.2 ms
_MAX_LINE: Final = 1 << 18  # characters kept of a line: two cells of CSV at their longest
_PROGRESS_S: Final = 5.0  # between two log lines about a long list


class SeedList:
    """A list of seeds. It can be read again and again, but not twice at a time."""

    def __init__(
        self,
        file: IO[bytes],
        name: str,
        source: str,
        terms: TermsOfSeeds | None = None,
        *,
        options: Sequence[str] = (),
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """*file* can seek. *name*: of the list, whose suffix tells its format. *source*: for
        messages. *options*: of all its seeds. *max_bytes*: most bytes of a packed list when it is
        unpacked."""
        self.source = source
        self.terms = terms or TermsOfSeeds()
        self._options = options
        self.lines = 0  # read so far by the last reading
        self._file = file
        self._max_bytes = max_bytes
        self._is_table = _without_packing(name).endswith(_TABLES)
        self._is_plan = _without_packing(name).endswith(_PLAN)
        self._size = file.seek(0, io.SEEK_END)

    def read(self) -> Iterator[SeedLine]:
        """Yield the seeds and the bad lines, from the first on. Raises SeedsError."""
        if self._is_table:
            return parse_table(self._lines, self.terms, self._options)
        if self._is_plan:
            return parse_plan(self._lines(), self.terms, self._options)
        return parse_seeds(self._lines(), self.terms, self._options)

    def progress(self) -> str:
        """Return how far the list is read, for people."""
        return f"{self.lines:,} lines of {self.source} ({self.share():.0%})"

    def share(self) -> float:
        """Return how much of the list is read, from 0 to 1. Another thread may ask."""
        return min(1.0, self._file.tell() / self._size) if self._size else 1.0

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        self.close()  # with the spider, whichever way that ends

    def _lines(self) -> Iterator[str]:
        """Yield the lines as editors number them: U+2028 and the like end none."""
        self.lines = 0
        begun = ""
        for text in self._texts():
            lines = (begun + text).split("\n")
            begun = lines.pop()[:_MAX_LINE]
            for line in lines:
                self.lines += 1
                yield line
        if begun:
            self.lines += 1
            yield begun

    def _texts(self) -> Iterator[str]:
        decoder = io.IncrementalNewlineDecoder(
            codecs.getincrementaldecoder("utf-8-sig")(), translate=True
        )
        try:
            for piece in self._pieces():
                yield decoder.decode(piece)
            yield decoder.decode(b"", final=True)
        except UnicodeDecodeError as broken:
            line = self.lines + broken.object.count(b"\n", 0, broken.start) + 1
            raise SeedsError(
                f"{self.source} is not UTF-8 (line {line}): save it as UTF-8"
            ) from broken

    def _pieces(self) -> Iterator[bytes]:
        source = self.source
        self._file.seek(0)
        begin = self._file.read(len(_ZSTD))
        self._file.seek(0)
        if begin.startswith(_ZIP):
            raise SeedsError(f"{source} is a zip archive: unpack it, and give a file in it")
        opened: IO[bytes] | gzip.GzipFile | zstd.ZstdFile = self._file
        if begin.startswith(_GZIP):
            opened = gzip.GzipFile(fileobj=self._file)
        elif begin.startswith(_ZSTD):
            opened = zstd.ZstdFile(self._file)
        room = self._max_bytes
        try:
            while piece := opened.read(_PIECE):
                yield piece
                room -= len(piece)
                if room < 0 and opened is not self._file:
                    raise SeedsError(
                        f"{source} is over {self._max_bytes >> 20} MB when unpacked: split it"
                    )
        except (OSError, EOFError, zlib.error, zstd.ZstdError) as damage:
            what = "read" if opened is self._file else "unpacked"
            raise SeedsError(f"{source} cannot be {what}: {damage}") from damage


class SeedLists:
    """Several lists, which are read as one."""

    def __init__(self, lists: Sequence[SeedList]) -> None:
        self._lists = lists
        self._at = 0  # the list that is being read
        self.source = " and ".join(dict.fromkeys(each.source for each in lists))
        self.terms = lists[0].terms

    def read(self) -> Iterator[SeedLine]:
        """As `SeedList.read`."""
        for at, each in enumerate(self._lists):
            self._at = at
            yield from each.read()

    def progress(self) -> str:
        """Return how far the lists are read, for people."""
        return self._lists[self._at].progress()

    def share(self) -> float:
        """As `SeedList.share`."""
        return (self._at + self._lists[self._at].share()) / len(self._lists)

    @property
    def lines(self) -> int:
        """Of the list that is being read."""
        return self._lists[self._at].lines

    def close(self) -> None:
        for each in self._lists:
            each.close()


Seeds = SeedList | SeedLists


class LoggedProgress:
    """Logs at intervals how far a list is read."""

    def __init__(self, seeds: Seeds, steady: Callable[[], float] = time.monotonic) -> None:
        self._seeds = seeds
        self._steady = steady
        self._next = steady() + _PROGRESS_S

    def note(self, more: str = "") -> None:
        """Log the progress, and *more*, if it is time to."""
        now = self._steady()
        if now >= self._next:
            self._next = now + _PROGRESS_S
            logger.info("Read %s%s", self._seeds.progress(), more)


def list_url(seeds: str) -> str | None:
    """Return the URL of a list, http(s) with the suffix of a list, if *seeds* is one, perhaps with
    options behind it, else None."""
    url, _ = split_options(seeds.strip())
    # With a line break, as what a crawl.toml says has, they are several seeds.
    if "," in seeds or "\n" in seeds or not url.startswith(("http://", "https://")):
        return None
    return url if _is_list_name(urlsplit(url).path) else None


def open_seeds(seeds: str, terms: TermsOfSeeds | None = None) -> Seeds:
    """Open seeds from a path, a file:// URL, or several of these and of URLs, separated by commas
    or line breaks, each perhaps with options behind it. Raises SeedsError, and ConfigError for
    options of a list that are wrong."""
    path = _path(seeds)
    if path is not None:
        return SeedList(_open(path), path.name, str(path), terms)
    terms = terms or TermsOfSeeds()
    lists: list[SeedList] = []
    urls: list[str] = []
    for item in [*_items(seeds), ""]:
        text, options = split_options(item.strip())
        path = _path_of_list(text)
        if (path is not None or not item) and urls:
            lines = "\n".join(urls).encode(errors="surrogateescape")
            lists.append(SeedList(io.BytesIO(lines), "", "the argument seeds", terms))
            urls = []
        if path is not None:
            terms.number_of(options)
            lists.append(SeedList(_open(path), path.name, str(path), terms, options=options))
        elif item:
            urls.append(item)
    if not lists:
        raise SeedsError("the argument seeds gives no seed: write URLs, or the path of a list")
    return lists[0] if len(lists) == 1 else SeedLists(lists)


def _items(seeds: str) -> list[str]:
    return seeds.split("\n" if "\n" in seeds else ",")


def _path_of_list(text: str) -> Path | None:
    """Return the path of a list that an item of several seeds names, or None if it is a URL."""
    if text.startswith("file://"):
        return Path(unquote(urlsplit(text).path))
    is_list = "://" not in text and (_is_list_name(text) or _exists(text))
    return Path(text) if is_list and text else None


def arguments_of_file(path: str) -> dict[str, str]:
    """Return the arguments that the file of a crawl says. Raises ConfigError."""
    file = Path(path).absolute()
    try:
        return read_crawl(file.read_text(encoding="utf-8-sig"), path, str(file.parent))
    except FileNotFoundError:
        raise ConfigError(
            f"the file of the crawl {path} does not exist (looked in {Path.cwd()}):"
            f" `{PROGRAM} init > crawl.toml` writes an example"
        ) from None
    except UnicodeDecodeError as broken:
        line = broken.object.count(b"\n", 0, broken.start) + 1
        raise ConfigError(f"{path} is not UTF-8 (line {line}): save it as UTF-8") from None
    except OSError as refused:
        raise ConfigError(f"{path} cannot be read: {refused.strerror}") from None


def whole_path(seeds: str) -> str:
    """Return *seeds* so that it means the same from any directory, where it names files."""
    if "://" not in seeds and _exists(seeds):
        return str(Path(seeds).absolute())
    items = []
    for item in _items(seeds):
        text, options = split_options(item.strip())
        is_file = "://" not in text and text and _exists(text)
        items.append(" ".join([str(Path(text).absolute()), *options]) if is_file else item)
    return ("\n" if "\n" in seeds else ",").join(items)


def survey_seeds(seeds: Seeds) -> SeedHosts:
    """Read all of *seeds*, log its bad lines, and return the hosts. Raises SeedsError, also if no
    good line is left."""
    with long_step(f"Checking {seeds.source}", seeds.share):
        return _survey(seeds)


def _survey(seeds: Seeds) -> SeedHosts:
    hosts = SeedHosts(seeds.terms)
    good = bad = 0
    for line in seeds.read():
        if isinstance(line, BadLine):
            bad += 1
            if bad <= _LOGGED_LINES:
                logger.warning(
                    "%s line %d skipped (%s): %r", seeds.source, line.number, line.reason, line.text
                )
        else:
            good += 1
            if isinstance(line, str):
                hosts.add(line)
            else:
                hosts.add(*line)
    if bad > _LOGGED_LINES:
        logger.warning("%s: %d more bad lines skipped", seeds.source, bad - _LOGGED_LINES)
    if not good:
        why = "no good line among the bad ones" if bad else "it is empty"
        raise SeedsError(f"{seeds.source} gives no seed: {why}. Write one URL a line")
    two = hosts.in_conflict(
        (line, 0) if isinstance(line, str) else (line.url, line.number)
        for line in seeds.read()
        if not isinstance(line, BadLine)
    )
    if two:
        raise ConfigError(
            f"{' and '.join(two)} are seeds of one scope and have different options: give them the"
            " same ones, or leave one out"
        )
    return hosts


def _without_packing(name: str) -> str:
    return name.lower().removesuffix(".gz").removesuffix(".zst")


def _is_list_name(name: str) -> bool:
    return _without_packing(name).endswith((*_TABLES, *_LISTS, _PLAN))


def refuse_anonymous(hosts: SeedHosts, config: Config) -> None:
    """Raise ConfigError if there is a public host and no contact."""
    if hosts.public and not config.may_go_public:
        raise ConfigError(
            f"{hosts.public} is a public host, and without a contact only loopback is"
            f" crawled: add -s CRAWLER_CONTACT=ADDRESS (make crawl: CONTACT=ADDRESS), or set it"
            f" in settings.py; ADDRESS is {WANT_CONTACT}. It is sent with every request"
        )


def batches(lines: Iterator[SeedLine], size: int) -> Iterator[list[str]]:
    """Yield the seeds of *lines*, up to *size* at a time, without the bad lines."""
    while taken := list(islice(lines, size)):
        yield [url for line in taken if (url := url_of(line)) is not None]


def _path(seeds: str) -> Path | None:
    """Return the path that *seeds* names, or None if it is a list of URLs itself."""
    is_one = not ("," in seeds or "\n" in seeds or split_options(seeds)[1])
    if seeds.startswith("file://") and is_one:
        return Path(unquote(urlsplit(seeds).path))
    if "://" in seeds:
        return None
    if _exists(seeds) or (is_one and not _is_typed_url(seeds)):
        return Path(seeds)
    return None


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # a list of many hosts is too long for a file name
        return False


def _is_typed_url(seeds: str) -> bool:
    """Return whether *seeds*, which is no file, is a URL without scheme and not a missing list."""
    if seeds.startswith((".", "/", "~")) or _is_list_name(seeds):
        return False
    try:
        url = seed_url(seeds)
    except ValueError:
        return False
    logger.info("There is no file %s: it is read as %s", seeds, url)
    return True


def _open(path: Path) -> IO[bytes]:
    try:
        file = path.open("rb")
        return file if file.seekable() else _copy(file, path)
    except FileNotFoundError:
        raise SeedsError(
            f"seeds file {path} does not exist (looked in {Path.cwd()}):"
            " give a path, file://, an http(s) URL of a list, or URLs or hosts separated by commas"
        ) from None
    except IsADirectoryError:
        raise SeedsError(f"seeds file {path} is a directory: give a file in it") from None
    except OSError as refused:
        raise SeedsError(f"seeds file {path} cannot be read: {refused.strerror}") from refused


def _copy(pipe: IO[bytes], path: Path) -> IO[bytes]:
    """Copy *pipe*, which can be read once only, into a file without a name."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the list is read from it later
    with pipe:
        while piece := pipe.read(_PIECE):
            file.write(piece)
            if file.tell() > MAX_BYTES:
                raise SeedsError(f"seeds file {path} is over {MAX_BYTES >> 20} MB: split it")
    return file
