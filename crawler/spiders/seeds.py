"""Where the seeds are read from: a file, a URL of a list, or the argument itself.

Rule: what cannot be read is an error that names it; a bad line in it is only skipped and told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from crawler.core.config import Config
from crawler.core.errors import ConfigError, SeedsError
from crawler.core.url import split
from crawler.policy.addresses import Place, place_of_host
from crawler.policy.seeds import Seeds, parse_seeds

logger = logging.getLogger(__name__)

# 256 MB: some three million seeds. More belongs in several lists.
MAX_BYTES: Final = 256 << 20
_TOLD: Final = 20  # bad lines named one by one


def list_url(seeds: str) -> str | None:
    """The URL of a list, if *seeds* is one: a single http(s) URL that ends in .txt or .csv."""
    if "," in seeds or not seeds.startswith(("http://", "https://")):
        return None
    return seeds if urlsplit(seeds).path.endswith((".txt", ".csv", ".lst")) else None


def read_seeds(seeds: str) -> Seeds:
    """Seeds from a path, a file:// URL, or URLs separated by commas. Raises SeedsError."""
    path = _path(seeds)
    if path is None:
        return checked(parse_seeds("\n".join(seeds.split(","))), "the argument seeds")
    return checked(parse_seeds(decoded(_bytes(path), str(path))), str(path))


def checked(seeds: Seeds, source: str) -> Seeds:
    """Tell about bad lines. Raises SeedsError if nothing good is left."""
    for line in seeds.bad[:_TOLD]:
        logger.warning("%s line %d skipped (%s): %r", source, line.number, line.reason, line.text)
    if len(seeds.bad) > _TOLD:
        logger.warning("%s: %d more bad lines skipped", source, len(seeds.bad) - _TOLD)
    if not seeds.urls:
        why = "no good line among the bad ones" if seeds.bad else "it is empty"
        raise SeedsError(f"{source} gives no seed: {why}. Write one URL a line")
    return seeds


def decoded(content: bytes, source: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as broken:
        line = content.count(b"\n", 0, broken.start) + 1
        raise SeedsError(f"{source} is not UTF-8 (line {line}): save it as UTF-8") from broken


def refuse_anonymous(urls: Iterable[str], config: Config) -> None:
    """Raises ConfigError if a public host is to be crawled by nobody in particular."""
    if config.may_go_public:
        return
    for url in urls:
        if place_of_host(split(url).hostname) is Place.PUBLIC:
            raise ConfigError(
                f"no crawl of {split(url).hostname} before you say who you are: set CRAWLER_CONTACT"
                " to a page about your crawl or a mail address, for example in settings.py"
                ' CRAWLER_CONTACT = "https://your-organisation.org/crawler", or'
                " -s CRAWLER_CONTACT=you@your-organisation.org"
            )


def batches(urls: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for begin in range(0, len(urls), size):
        yield urls[begin : begin + size]


def _path(seeds: str) -> Path | None:
    """None: it is a list of URLs itself."""
    if seeds.startswith("file://"):
        return Path(unquote(urlsplit(seeds).path))
    if "://" in seeds or ("," in seeds and not Path(seeds).exists()):
        return None
    return Path(seeds)


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:  # or a pipe, whose size nobody knows
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise SeedsError(
            f"seeds file {path} does not exist (looked in {Path.cwd()}):"
            " give a path, file://, an http(s) URL of a list, or URLs separated by commas"
        ) from None
    except IsADirectoryError:
        raise SeedsError(f"seeds file {path} is a directory: give a file in it") from None
    except OSError as refused:
        raise SeedsError(f"seeds file {path} cannot be read: {refused.strerror}") from refused
    if len(content) > MAX_BYTES:
        raise SeedsError(f"seeds file {path} is over {MAX_BYTES >> 20} MB: split it")
    return content
