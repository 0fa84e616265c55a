"""Judge the pages under some folders by the table of signatures, as a crawl would that gets them
with status 200, and those whose names say so as answers 401 and 403, too. None of them is a
challenge.

    python scripts/judge_challenges.py FOLDER...

The folders are of unpacked packages: documentation, and products with forms to log in. It was run
over 74,000 pages of 14 packages of Debian's documentation, and over the forms of 40 products.
"""

from __future__ import annotations

import gzip
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.insert(
    0, str(Path(__file__).parents[1])
)  # run as a file, Python looks beside it, not here

from crawler.page.challenge import Reception, Signatures  # needs the path above

PAGES: Final = re.compile(r"\.(html?|xhtml|shtml)(\.gz)?$", re.I)
TEMPLATES: Final = re.compile(
    r"\.(php|phtml|tpl|inc|erb|twig|j2|jinja2?|pt|ct|tt|var|mustache|tmpl)$", re.I
)
FORMS: Final = re.compile(
    r"log_?in|sign_?(in|up)|regist|password|40[13]|forbidden|denied|unauthori|captcha|turnstile",
    re.I,
)


def pages(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the pages under *folder*, and the templates whose names say that they are forms or
    refusals."""
    for file in sorted(folder.rglob("*")):
        is_form = TEMPLATES.search(file.name) and FORMS.search(file.name)
        if (PAGES.search(file.name) or is_form) and file.is_file() and not file.is_symlink():
            body = file.read_bytes()
            yield file, gzip.decompress(body) if file.suffix == ".gz" else body


def main(folders: list[str]) -> int:
    table, judged, forms, wrong, seconds = Signatures(), 0, 0, 0, 0.0
    headers = {b"Content-Type": [b"text/html"], b"Set-Cookie": [b"session=1"]}
    for folder in folders:
        for file, body in pages(Path(folder)):
            judged += 1
            is_form = FORMS.search(file.name) is not None
            forms += is_form
            # Templates begin with other than a tag, and would count as no pages.
            page = b"<!doctype html>" + body if is_form else body
            is_part = "captcha" in file.name.lower() or "turnstile" in file.name
            for status in (200, 401, 403) if is_form and not is_part else (200,):
                begun = time.perf_counter()
                found = table.challenge_of(status, headers, page)
                seconds += time.perf_counter() - begun if status == 200 else 0.0
                if found is not None and (status == 200 or found[0] is Reception.NOT_WELCOME):
                    wrong += 1
                    print(f"{file}: with status {status} it is {found.name}: {found.reception}")
    mean_us = 1e6 * seconds / max(judged, 1)
    print(f"{judged:,} pages, {forms:,} forms and refusals: {wrong:,} wrong; {mean_us:.1f} us each")
    return bool(wrong or not judged)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
