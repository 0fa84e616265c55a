"""A destination, from its setting: what can never work is said before the crawl begins.

Rule: asked is only whether the bucket is there. Nothing is written to see whether it may be: what
was written could often not be taken away again. A store that is down is no wrong setting.
"""

from __future__ import annotations

import logging
from pathlib import Path

from crawler.core.errors import ConfigError, StoreUnavailable
from crawler.storage.delivery.address import SETTING, read_address
from crawler.storage.delivery.folder_store import FolderStore
from crawler.storage.delivery.object_store import ObjectStore
from crawler.storage.delivery.store import Store

logger = logging.getLogger(__name__)


def open_store(url: str, data: Path) -> Store:
    """For the finished files of *data*. Raises ConfigError. Blocks until the store has answered,
    at most a minute where it hangs."""
    address = read_address(url)
    store = FolderStore(address) if address.is_folder else ObjectStore(address)
    try:
        store.check()
    except StoreUnavailable as down:
        logger.warning("Cannot ask %s yet: %s. What is finished waits for it.", address, down)
    if address.is_folder and Path(address.path).samefile(data):
        raise ConfigError(f"{SETTING} names the data directory itself; leave it empty")
    return store
