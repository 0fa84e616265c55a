"""Write what docs/settings.md says about our settings, from their one table.

Run by `make settings`; tests/test_docs.py compares. Only the part between the two marks is written,
what stands around it is kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, Python looks beside it, not here

from crawler.config.arguments import Arguments, SeedTerms  # noqa: E402  # needs the path above
from crawler.config.readers import Setting, settings_of  # noqa: E402  # needs the path above
from crawler.config.settings import settings_table  # noqa: E402  # needs the path above

BEGIN, END = "made by `make settings` from here", "to here"  # in <!-- -->
BLOCK: Final = re.compile(rf"(?s)({BEGIN} -->\n).*?(<!-- {END} -->)")


def page_lines() -> Iterator[str]:
    """The settings and arguments as tables."""
    for group, rows in settings_table().items():
        yield from [f"### {title(group)}", "", *table("setting", rows), ""]
    yield from [
        "## Arguments of the spider `web`",
        "",
        *table("argument", settings_of(Arguments)),
        "",
        "## Options of a seed",
        "",
        "Behind a URL in `seeds` or in a list, as `scope=prefix max_pages=100`, and in",
        "[crawl.toml](crawls.md). What they do not say is as in the arguments.",
        "",
        *table("option", settings_of(SeedTerms)),
        "",
    ]


def table(what: str, rows: list[Setting]) -> Iterator[str]:
    yield f"| {what} | default | unit | meaning |"
    yield "| --- | --- | --- | --- |"
    for row in rows:
        default = plain(row.default)
        shown = f"`{default}`" if default else ""
        yield f"| `{row.name}` | {shown} | {row.kind.unit} | {row.meaning} |"


def title(group: type) -> str:
    return (group.__doc__ or "").splitlines()[0].rstrip(".")


def plain(default: object) -> str:
    """A default as a command line has it."""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return "none" if default is None else str(default)


def written(old: str, lines: Iterator[str]) -> str:
    """*old* with its marked part made new."""
    body = "\n" + "\n".join(lines).rstrip() + "\n\n"
    new, count = BLOCK.subn(lambda found: found[1] + body + found[2], old)
    if count != 1:
        raise SystemExit(f"one part marked '{BEGIN}' is needed, {count} found")
    return new


def files() -> dict[Path, Iterator[str]]:
    return {ROOT / "docs" / "settings.md": page_lines()}


if __name__ == "__main__":
    for path, lines in files().items():
        path.write_text(written(path.read_text(encoding="utf-8"), lines), encoding="utf-8")
