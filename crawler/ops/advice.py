"""What a person can type next."""

from __future__ import annotations

import shlex

from crawler.core.config import Archive


def frontier_command(action: str, data_dir: str) -> str:
    """`scrapy frontier` with *action*, on *data_dir*."""
    if data_dir == Archive().data_dir:
        return f"scrapy frontier {action}"
    return f"scrapy frontier {action} -s {shlex.quote(f'CRAWLER_DATA_DIR={data_dir}')}"
