"""Read the seeds from a file, a list that was fetched, or the argument itself. A list is CSV by its
name, and compressed (gzip, zstd) by its first bytes.

Rule: a source that cannot be read raises an error that names it; a bad line is skipped and logged.
"""

from __future__ import annotations

import gzip
import io
import logging
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from crawler.config.readers import WANT_CONTACT
from crawler.config.settings import Config
from crawler.model.types import ConfigError, SeedsError
from crawler.model.url import split
from crawler.policy.scope import AddressKind, host_kind
from crawler.policy.seeds import (
    Seeds,
    parse_seeds,
    parse_table,
    seed_url,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

logger = logging.getLogger(__name__)

# 256 MB: some three million seeds. More belongs in several lists.
MAX_BYTES: Final = 256 << 20
_TABLES: Final = (".csv", ".tsv")
_LISTS: Final = (".txt", ".lst")
_GZIP: Final = b"\x1f\x8b\x08"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZIP: Final = b"PK\x03\x04"
_LOGGED_LINES: Final = 20  # bad lines logged one by one


def list_url(seeds: str) -> str | None:
    """Return *seeds* if it is the URL of a list, http(s) with the suffix of a list, else None."""
    if "," in seeds or not seeds.startswith(("http://", "https://")):
        return None
    return seeds if _is_list_name(urlsplit(seeds).path) else None


def read_seeds(seeds: str) -> Seeds:
    """Read seeds from a path, a file:// URL, or URLs separated by commas. Raises SeedsError."""
    path = _path(seeds)
    if path is None:
        return check_seeds(parse_seeds("\n".join(seeds.split(","))), "the argument seeds")
    return read_list(_bytes(path), path.name, str(path))


def read_list(content: bytes, name: str, source: str, max_bytes: int = MAX_BYTES) -> Seeds:
    """Read seeds from a list, compressed or not, whose file is called *name*. Raises SeedsError."""
    text = _decoded(_unpacked(content, source, max_bytes), source)
    is_table = _without_packing(name).endswith(_TABLES)
    return check_seeds(parse_table(text) if is_table else parse_seeds(text), source)


def check_seeds(seeds: Seeds, source: str) -> Seeds:
    """Log the bad lines and return *seeds*. Raises SeedsError if no good line is left."""
    for line in seeds.bad[:_LOGGED_LINES]:
        logger.warning("%s line %d skipped (%s): %r", source, line.number, line.reason, line.text)
    if len(seeds.bad) > _LOGGED_LINES:
        logger.warning("%s: %d more bad lines skipped", source, len(seeds.bad) - _LOGGED_LINES)
    if not seeds.urls:
        why = "no good line among the bad ones" if seeds.bad else "it is empty"
        raise SeedsError(f"{source} gives no seed: {why}. Write one URL a line")
    return seeds


def _without_packing(name: str) -> str:
    return name.lower().removesuffix(".gz").removesuffix(".zst")


def _is_list_name(name: str) -> bool:
    return _without_packing(name).endswith((*_TABLES, *_LISTS))


def _unpacked(content: bytes, source: str, max_bytes: int) -> bytes:
    if content.startswith(_ZIP):
        raise SeedsError(f"{source} is a zip archive: unpack it, and give a file in it")
    if not content.startswith((_GZIP, _ZSTD)):
        return content
    packed = io.BytesIO(content)
    opened = gzip.GzipFile(fileobj=packed) if content.startswith(_GZIP) else zstd.ZstdFile(packed)
    try:
        unpacked = opened.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error, zstd.ZstdError) as damage:
        raise SeedsError(f"{source} cannot be unpacked: {damage}") from damage
    if len(unpacked) > max_bytes:
        raise SeedsError(f"{source} is over {max_bytes >> 20} MB when unpacked: split it")
    return unpacked


def _decoded(content: bytes, source: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as broken:
        line = content.count(b"\n", 0, broken.start) + 1
        raise SeedsError(f"{source} is not UTF-8 (line {line}): save it as UTF-8") from broken


def refuse_anonymous(urls: Iterable[str], config: Config) -> None:
    """Raise ConfigError if a public host is to be crawled without a contact."""
    if config.may_go_public:
        return
    for url in urls:
        if host_kind(split(url).hostname) is AddressKind.PUBLIC:
            raise ConfigError(
                f"{split(url).hostname} is a public host, and without a contact only loopback is"
                f" crawled: add -s CRAWLER_CONTACT=ADDRESS (make crawl: CONTACT=ADDRESS), or set it"
                f" in settings.py; ADDRESS is {WANT_CONTACT}. It is sent with every request"
            )


def batches(urls: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for begin in range(0, len(urls), size):
        yield urls[begin : begin + size]


def _path(seeds: str) -> Path | None:
    """Return the path that *seeds* names, or None if it is a list of URLs itself."""
    if seeds.startswith("file://"):
        return Path(unquote(urlsplit(seeds).path))
    if "://" in seeds:
        return None
    if _exists(seeds) or not ("," in seeds or _is_typed_url(seeds)):
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


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:  # or a pipe, whose size is not known before
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise SeedsError(
            f"seeds file {path} does not exist (looked in {Path.cwd()}):"
            " give a path, file://, an http(s) URL of a list, or URLs or hosts separated by commas"
        ) from None
    except IsADirectoryError:
        raise SeedsError(f"seeds file {path} is a directory: give a file in it") from None
    except OSError as refused:
        raise SeedsError(f"seeds file {path} cannot be read: {refused.strerror}") from refused
    if len(content) > MAX_BYTES:
        raise SeedsError(f"seeds file {path} is over {MAX_BYTES >> 20} MB: split it")
    return content
