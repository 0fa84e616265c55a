"""The archive of one crawl: what is written beside each WARC file, and what a dead process left.

Rule: it begins with the first record, as it needs the loop; what is unfinished is mended before.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from crawler import rules
from crawler.core.config import Config
from crawler.reparsing import again
from crawler.storage.columns.companion import ColumnsCompanion
from crawler.storage.local.datadir import DataDir
from crawler.storage.warc.archive import Archive
from crawler.storage.warc.cdxj import CdxjCompanion
from crawler.storage.warc.companions import Companion
from crawler.storage.warc.recovery import recover
from crawler.storage.warc.writer import WarcWriter

logger = logging.getLogger(__name__)


class Keeping:
    def __init__(self, config: Config, data: DataDir) -> None:
        """Mends what is unfinished. Raises CrawlerError."""
        self._config = config
        self._data = data
        self._companions = companions(config)
        self._archive: Archive | None = None
        for mended in recover(data.warc, self._companions):
            logger.warning("Archive left unfinished by a crash, now whole: %s", mended)

    def archive(self) -> Archive | None:
        """None: the crawl keeps none."""
        if self._archive is None and self._config.archive.warc:
            warc_rules = rules.warc_rules(self._config, self._data.warc)
            self._archive = Archive(WarcWriter(warc_rules, self._companions))
        return self._archive

    async def close(self) -> None:
        if self._archive is not None:
            await self._archive.close()


def companions(config: Config) -> Sequence[Companion]:
    """Of each WARC file of this crawl."""
    columns = [ColumnsCompanion(again(config))] if config.archive.columns else []
    return [CdxjCompanion(), *columns]
