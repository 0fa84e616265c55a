"""A project of a user's own, which crawls with ours and adds what it wants."""

from crawler.settings import *  # noqa: F403 - how a Scrapy project takes over another's settings

BOT_NAME = "mine"
SPIDER_MODULES = ["crawler.spiders", "mine.spiders"]
NEWSPIDER_MODULE = "mine.spiders"

DOWNLOADER_MIDDLEWARES = {"mine.middlewares.Passport": 543}
SPIDER_MIDDLEWARES = {"mine.middlewares.Censor": 500}
ITEM_PIPELINES = {"mine.pipelines.Editor": 250, "mine.pipelines.Diary": 900}
