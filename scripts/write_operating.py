"""Write what docs/operating.md says about verbs and rules, from their tables.

Run by `make settings`; tests/test_docs.py compares. As in write_settings.py, only what stands
between the two marks is written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, Python looks beside it, not here

from crawler.console.views import VIEWS  # noqa: E402  # needs the path above
from crawler.operate.verbs import VERBS  # noqa: E402  # needs the path above
from crawler.policy.operator_rules import KEYS, KEYS_OF_CRAWL, Key  # noqa: E402  # needs the path
from scripts.write_settings import written  # noqa: E402  # needs the path above

PAGE: Final = ROOT / "docs" / "operating.md"


def page_lines() -> Iterator[str]:
    yield from ["### Verbs", "", "| `gossamer frontier` | what it does |", "| --- | --- |"]
    for verb in VERBS.values():
        words = f"{verb.name} {verb.takes}".strip().replace("|", "\\|")
        yield f"| `{words}` | {verb.meaning} |"
    yield from [
        "",
        "### Views",
        "",
        "| `GET` | parameters | what it shows |",
        "| --- | --- | --- |",
    ]
    for view in VIEWS.values():
        asked = ", ".join(f"`{name}`" for name in view.asked.__struct_fields__)
        yield f"| `/api/{view.name}` | {asked} | {view.meaning} |"
    yield "| `/api/overview` | | The figures of the crawl as a whole. |"
    asked = ", ".join(f"`{name}`" for name in VIEWS["outcomes"].asked.__struct_fields__)
    yield f"| `/api/live` | {asked} | Both each second, as server-sent events. |"
    yield from ["", "### Keys of a rule", "", *_table(KEYS), ""]
    yield from [
        "### Keys of the whole crawl, before the first rule",
        "",
        *_table(KEYS_OF_CRAWL),
        "",
    ]


def _table(known: Mapping[str, Key]) -> Iterator[str]:
    yield "| key | value | meaning |"
    yield "| --- | --- | --- |"
    for name, key in known.items():
        yield f"| `{name}` | {key.kind.expected} | {key.meaning} |"


def files() -> dict[Path, Iterator[str]]:
    return {PAGE: page_lines()}


if __name__ == "__main__":
    for path, lines in files().items():
        path.write_text(written(path.read_text(encoding="utf-8"), lines), encoding="utf-8")
