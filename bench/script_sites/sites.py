"""Which sites there are: what each of them is made with, and where it is served.

Rule: one address of 127.0.0.0/8 for each site, and fifty for hosts of which pages load scripts,
styles and data. What a site is made of is in files; `sites.json` in the folder of a build lists
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

FRAMEWORKS: Final = ("react", "vue", "svelte", "angular", "next")
GENERATORS: Final = ("alabaster", "furo", "rtd", "mkdocs", "material", "pdoc")
OTHER_HOSTS: Final = tuple(f"127.41.0.{number}" for number in range(1, 51))
SITES_OF_FRAMEWORK: Final = 6
ORDINARY: Final = 54  # of which 30 are half of the mix, and all are nine of ten
LISTED: Final = "sites.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A site as it is served."""

    name: str
    address: str
    made_with: str  # one of FRAMEWORKS or GENERATORS
    pages: int
    is_by_scripts: bool = False  # what a page says is not in the HTML that is sent
    is_numbered: bool = False  # its URLs have numbers, not words
    routes: str = ""  # history, hash or nested
    data: str = ""  # where pages have their text from: bundle, same host, other host, fifty hosts
    is_split: bool = False  # into scripts that are loaded when they are needed
    links: str = "router"  # router; late: after the data came; lazy: in a list that grows in view
    styles: str = "file"  # file, script
    libraries: int = 0  # scripts of other hosts, each of another one
    disallow: tuple[str, ...] = ()  # in its robots.txt
    crawl_delay_s: float = 0.0
    busy: tuple[str, ...] = ()  # paths whose first answer is 429 with a Retry-After
    has_late_part: bool = False  # of a page whose text is in its HTML: a part that scripts bring


TRACKER: Final = "/tracker/hit.json"  # that pages ask for and can do without
_SPLIT: Final = (False, True, False, True, False, True)
_DATA: Final = ("bundle", "same host", "same host", "other host", "fifty hosts", "bundle")
_ROUTES: Final = ("history", "history", "hash", "nested", "history", "nested")
_LINKS: Final = ("router", "late", "router", "late", "lazy", "router")
_STYLES: Final = ("file", "script", "file", "file", "file", "script")
_LIBRARIES: Final = {"react": 50, "vue": 20, "svelte": 10, "angular": 5, "next": 3}


def by_scripts() -> list[Site]:
    """Return the thirty sites that are built with frameworks. Next's static export writes the text
    of each page into its HTML; two of its six have a part that only scripts bring."""
    found = []
    for at, framework in enumerate(FRAMEWORKS):
        for number in range(SITES_OF_FRAMEWORK):
            is_next = framework == "next"
            found.append(
                Site(
                    name=f"{framework}-{number}",
                    address=f"127.40.0.{at * SITES_OF_FRAMEWORK + number + 1}",
                    made_with=framework,
                    pages=50 - 3 * ((at + number) % 4),
                    is_by_scripts=not is_next,
                    is_numbered=number % 2 == 1,
                    routes="history" if is_next else _ROUTES[number],
                    data="bundle" if is_next else _DATA[number],
                    is_split=_SPLIT[number],
                    links="router" if is_next else _LINKS[number],
                    styles=_STYLES[number],
                    libraries=_LIBRARIES[framework] if number == 5 else 0,
                    disallow=(TRACKER,) if number == 1 else (),
                    crawl_delay_s=0.2 if (framework, number) == ("vue", 3) else 0.0,
                    busy=(TRACKER,) if number == 4 else (),
                    has_late_part=is_next and number in (1, 3),
                )
            )
    return found


def ordinary() -> list[Site]:
    """Return the documentation sites. Their generators take turns."""
    return [
        Site(
            name=f"{GENERATORS[number % len(GENERATORS)]}-{number // len(GENERATORS)}",
            address=f"127.40.1.{number + 1}",
            made_with=GENERATORS[number % len(GENERATORS)],
            pages=50,
            is_numbered=number // len(GENERATORS) % 2 == 1,
        )
        for number in range(ORDINARY)
    ]


def write_list(folder: Path, sites: list[Site]) -> None:
    (folder / LISTED).write_bytes(msgspec.json.format(msgspec.json.encode(sites)))


def read_list(folder: Path) -> list[Site]:
    return msgspec.json.decode((folder / LISTED).read_bytes(), type=list[Site])
