"""Write what settings.py and docs/settings.md say about our settings, from their one table.

Run by `make settings`; tests/test_docs.py compares. Only the part between the two marks of
each file is written, what stands around it is kept.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, Python looks beside it, not here

from crawler.config.kinds import Knob, knobs  # noqa: E402  # needs the path above
from crawler.config.settings import Arguments, settings_table  # noqa: E402  # needs the path above

WIDTH: Final = 98
BEGIN, END = "made by `make settings` from here", "to here"  # in <!-- -->, in Python after #
BLOCK: Final = re.compile(rf"(?s)({BEGIN} -->\n).*?((?:# )?<!-- {END} -->)")


def module_lines() -> Iterator[str]:
    """The knobs as they stand in settings.py: commented out, at their defaults."""
    for group, rows in settings_table().items():
        yield f"# --- {title(group)} ---"
        yield ""
        for row in rows:
            yield from comment(f"{row.meaning} [{row.kind.unit}]")
            yield from comment(f"{row.name} = {python(row.default)}", "#     ")
            yield ""


def page_lines() -> Iterator[str]:
    """The same as tables for a reader."""
    for group, rows in settings_table().items():
        yield from [f"### {title(group)}", "", *table("setting", rows), ""]
    yield from ["## Arguments of the spider `web`", "", *table("argument", knobs(Arguments)), ""]


def table(what: str, rows: list[Knob]) -> Iterator[str]:
    yield f"| {what} | default | unit | meaning |"
    yield "| --- | --- | --- | --- |"
    for row in rows:
        default = plain(row.default)
        shown = f"`{default}`" if default else ""
        yield f"| `{row.name}` | {shown} | {row.kind.unit} | {row.meaning} |"


def title(group: type) -> str:
    return (group.__doc__ or "").splitlines()[0].rstrip(".")


def comment(text: str, following: str = "# ") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="# ", subsequent_indent=following, break_on_hyphens=False
    )


def python(default: object) -> str:
    """A default as a settings module has it."""
    if isinstance(default, tuple):
        return json.dumps([str(one) if not isinstance(one, int) else one for one in default])
    if isinstance(default, StrEnum | str):
        return json.dumps(str(default))
    return f"{default:_}" if isinstance(default, int) and default >= 10_000 else repr(default)


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
    return {
        ROOT / "crawler" / "settings.py": module_lines(),
        ROOT / "docs" / "settings.md": page_lines(),
    }


if __name__ == "__main__":
    for path, lines in files().items():
        path.write_text(written(path.read_text(encoding="utf-8"), lines), encoding="utf-8")
