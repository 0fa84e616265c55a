"""The settings of the project: Scrapy's first, then the crawler's own with their defaults.

To change one of ours, write it here, or give it to one crawl: -s CRAWLER_CONTACT=... A misspelt or
impossible one stops the crawl before its first request. Scrapy's own settings work as usual, except
those that ours replace: they are refused, and the error names ours.
"""

BOT_NAME = "gossamer"
SPIDER_MODULES = ["crawler.spiders"]
NEWSPIDER_MODULE = "crawler.spiders"
COMMANDS_MODULE = "crawler.commands"

# Scheduler, downloader, middlewares, pipelines and extensions of ours: see crawler/addon.py. Your
# own go where they always do, with numbers relative to ours: DOWNLOADER_MIDDLEWARES,
# SPIDER_MIDDLEWARES, ITEM_PIPELINES, EXTENSIONS.
ADDONS = {"crawler.addon.Addon": 500}

ROBOTSTXT_OBEY = True  # the crawler obeys it in any case
FEED_EXPORT_ENCODING = "utf-8"

LOG_LEVEL = "INFO"  # DEBUG: two lines a page
LOG_VERSIONS: list[str] = []  # add "Python", "Twisted"... to investigate an error
STATS_DUMP = False  # the summary has these figures in a readable form

# More needs more file descriptors, and for long bodies up to 1 MB of memory each,
# beside what CRAWLER_BODIES_MAX_BYTES allows for them together.
CONCURRENT_REQUESTS = 64

# What is changed first. Every setting, with its unit and default: docs/settings.md.
# CRAWLER_CONTACT = ""  # the operator's contact: a URL or mail address, sent with every request
# CRAWLER_USER_AGENT_NAME = "Gossamer"  # the name in User-Agent and for robots.txt
# CRAWLER_PACED_SHARE = 0.5  # most of a host's time in which a fetch is under way, if it stays fast
# These two hold for fast servers, too, as soon as you set them:
# CRAWLER_MIN_DELAY_S = 1.0  # shortest rest of a host after each answer
# CRAWLER_DELAY_FACTOR = 10.0  # a rest is so many times as long as the answer took
# CRAWLER_DATA_DIR = "crawl-data"  # all of a crawl; "crawl-data/%(name)s": one for each spider
# CRAWLER_HTML_MAX_BYTES = 2_097_152  # longer pages are cut; other types have caps of their own
# CRAWLER_BODIES_MAX_BYTES = 268_435_456  # memory for all bodies on their way
# CRAWLER_FRONTIER_URL = ""  # redis://...: the crawl is shared by all workers that name it
# CRAWLER_ARCHIVE_URL = ""  # s3://bucket/folder: finished WARC files are brought there
