"""The project's settings. Scrapy's stand above, ours below, each at its default.

To change one of ours, uncomment it here, or give it to one crawl: -s CRAWLER_CONTACT=...
A misspelt or impossible one stops the crawl before its first request. Scrapy's own settings
work as ever, but for those that ours replace: these are refused with the right name.
"""

BOT_NAME = "gossamer"
SPIDER_MODULES = ["crawler.spiders"]
NEWSPIDER_MODULE = "crawler.spiders"
COMMANDS_MODULE = "crawler.commands"

# Scheduler, downloader, middlewares, pipelines and extensions of ours: see crawler/addon.py.
# Your own go where they always do, their numbers beside ours: DOWNLOADER_MIDDLEWARES,
# SPIDER_MIDDLEWARES, ITEM_PIPELINES, EXTENSIONS.
ADDONS = {"crawler.addon.Addon": 500}

ROBOTSTXT_OBEY = True  # and by us in any case
FEED_EXPORT_ENCODING = "utf-8"

LOG_LEVEL = "INFO"  # DEBUG: two lines a page
LOG_VERSIONS: list[str] = []  # add "Python", "Twisted"... when an error is to be looked into
STATS_DUMP = False  # the summary says it in a readable form

# More at once needs more file descriptors, and where all are long up to 1 MB of memory each,
# beside what CRAWLER_BODIES_MAX_BYTES allows for them together.
CONCURRENT_REQUESTS = 64

# <!-- made by `make settings` from here -->

# --- Who we say we are ---

# Who answers for the crawl: sent with every request. [URL or mail address]
# CRAWLER_CONTACT = ""

# The crawler's name in User-Agent; the one looked for in robots.txt. [name]
# CRAWLER_USER_AGENT_NAME = "Gossamer"

# --- How long a host is left alone ---

# What one host is: a host name, or a registered domain. [host or domain]
# CRAWLER_HOST_UNIT = "host"

# Shortest rest of a host, from a fetch's end to the next's start. [seconds]
# CRAWLER_MIN_DELAY_S = 1.0

# Longest rest that a slow answer can lead to. [seconds]
# CRAWLER_MAX_DELAY_S = 300.0

# A host rests so many times as long as its last fetch took. [times]
# CRAWLER_DELAY_FACTOR = 10.0

# A longer Crawl-delay in robots.txt is taken as this. [seconds]
# CRAWLER_MAX_CRAWL_DELAY_S = 3600.0

# A longer Retry-After is taken as this. [seconds]
# CRAWLER_MAX_RETRY_AFTER_S = 86400.0

# Times a failed URL is tried again before it is dead. [attempts]
# CRAWLER_RETRIES = 3

# First back-off after a failure; doubles each time, full jitter. [seconds]
# CRAWLER_BACKOFF_BASE_S = 1.0

# Longest back-off. [seconds]
# CRAWLER_BACKOFF_MAX_S = 60.0

# Failures in a row that pause a host. [failures]
# CRAWLER_PAUSE_AFTER_FAILURES = 5

# First pause of a failing host, before one probe. [seconds]
# CRAWLER_PAUSE_S = 300.0

# Longest pause; it doubles with each probe that fails. [seconds]
# CRAWLER_PAUSE_MAX_S = 3600.0

# --- How robots.txt is asked for and kept ---

# How long a robots.txt is believed before it is fetched again. [seconds]
# CRAWLER_ROBOTS_MAX_AGE_S = 86400.0

# Times an unreachable robots.txt is asked for in a row. [attempts]
# CRAWLER_ROBOTS_TRIES = 5

# How long its host is then left alone. [seconds]
# CRAWLER_ROBOTS_UNREACHABLE_S = 3600.0

# Bytes of a robots.txt that are read. [bytes]
# CRAWLER_ROBOTS_MAX_BYTES = 524_288

# --- Which URLs are not worth a visit ---

# Redirects followed in a row. [redirects]
# CRAWLER_MAX_REDIRECTS = 10

# Longest URL that is fetched. [characters]
# CRAWLER_MAX_URL_LENGTH = 2048

# Most path segments of a URL that is fetched. [segments]
# CRAWLER_MAX_PATH_SEGMENTS = 10

# Most URLs of a registered domain; auto: 10,000 if the scope is any, else none. [URLs, or none,
# or auto]
# CRAWLER_MAX_URLS_PER_DOMAIN = "auto"

# Most URLs of a host. [URLs, or none]
# CRAWLER_MAX_URLS_PER_HOST = None

# URLs whose path ends so are not fetched. [list of extensions]
# CRAWLER_DENY_EXTENSIONS = ["jpg", "jpeg", "jpe", "png", "gif", "bmp", "tif", "tiff", "webp",
#     "avif", "heic", "heif", "ico", "svg", "svgz", "psd", "eps", "jp2", "jxl", "xcf", "dng",
#     "cr2", "nef", "mp3", "m4a", "aac", "ogg", "oga", "opus", "wav", "wma", "flac", "aiff",
#     "mid", "midi", "amr", "mp4", "m4v", "mov", "avi", "wmv", "mpg", "mpeg", "mkv", "webm",
#     "ogv", "flv", "3gp", "asf", "vob", "m3u8", "mpd", "swf", "zip", "gz", "tgz", "bz2", "tbz2",
#     "xz", "txz", "zst", "7z", "rar", "tar", "lz", "lzma", "cab", "iso", "img", "dmg", "pkg",
#     "deb", "rpm", "apk", "ipa", "jar", "war", "whl", "egg", "gem", "crx", "xpi", "torrent",
#     "warc", "wacz", "exe", "msi", "dll", "bin", "bat", "pyc", "wasm", "vhd", "vmdk", "ova",
#     "qcow2", "sqlite", "mdb", "parquet", "npy", "pkl", "h5", "css", "woff", "woff2", "ttf",
#     "otf", "eot", "cur"]

# --- Which different URLs count as one ---

# Tracking parameters (utm_source...) do not count. [yes or no]
# CRAWLER_STRIP_TRACKING = True

# Session ids (PHPSESSID...) do not count. [yes or no]
# CRAWLER_STRIP_SESSION_IDS = False

# The order of query parameters does not count. [yes or no]
# CRAWLER_SORT_QUERY = True

# /a and /a/ are one. [yes or no]
# CRAWLER_MERGE_TRAILING_SLASH = False

# www.a.org and a.org are one. [yes or no]
# CRAWLER_MERGE_WWW = False

# http and https are one. [yes or no]
# CRAWLER_MERGE_HTTPS = False

# A page that names another URL as its canonical one is that URL. [yes or no]
# CRAWLER_CANONICAL_IDENTITY = False

# --- Which links of a page are followed ---

# Links that are followed, by where they stand. [list of a or area or frame or iframe or canonical
# or alternate or refresh or media or listed or sitemap or entry or text]
# CRAWLER_FOLLOW_KINDS = ["a", "area", "frame", "iframe", "canonical", "alternate", "refresh",
#     "listed", "sitemap", "entry"]

# Fetch the sitemaps that robots.txt names, after everything else. [yes or no]
# CRAWLER_FOLLOW_SITEMAPS = True

# Also follow the links of a page whose content is stored already. [yes or no]
# CRAWLER_FOLLOW_DUPLICATES = False

# Leave links marked nofollow, on the link, the page or in X-Robots-Tag. [yes or no]
# CRAWLER_RESPECT_NOFOLLOW = True

# Do not archive pages marked noindex; their links are followed. [yes or no]
# CRAWLER_RESPECT_NOINDEX = True

# --- What counts as a page, and what as a copy ---

# Parsers of your own; they go before those that are installed. [list of class path]
# CRAWLER_PARSERS = []

# Longest processor time for a page that is parsed apart (PDF, feeds, long ones). [seconds]
# CRAWLER_PARSE_TIMEOUT_S = 20.0

# Most memory of each process that parses apart. [bytes]
# CRAWLER_PARSE_MAX_BYTES = 536_870_912

# Ask a host once for a name it cannot have, where its pages look like errors. [yes or no]
# CRAWLER_SOFT_404 = True

# Pages with nearly the same text: marked, stored, followed; or less, or not looked for. [follow
# or store or mark or off]
# CRAWLER_NEAR_DUPLICATES = "follow"

# So many of the 64 bits of two fingerprints may differ. [bits]
# CRAWLER_NEAR_MAX_BITS = 3

# A page with fewer words has no fingerprint. [words]
# CRAWLER_NEAR_MIN_WORDS = 50

# --- When URLs of one pattern (digits, dates, queries folded) are enough ---

# Most pages fetched of one pattern of a host. [pages, or none]
# CRAWLER_PATTERN_MAX_PAGES = 10_000

# A pattern is left after so many pages in a row with nothing new. [pages, or none]
# CRAWLER_PATTERN_BARREN_PAGES = 100

# One page of a pattern that was left is tried again. [seconds]
# CRAWLER_PATTERN_PROBE_S = 3600.0

# A date in a URL before this year is taken for a calendar's. [year]
# CRAWLER_CALENDAR_FROM_YEAR = 1990

# A date in a URL further ahead is taken for a calendar's. [days]
# CRAWLER_CALENDAR_AHEAD_DAYS = 400

# --- Which URL is next ---

# Turns that the levels of priority get of each other, best level first. [list of turns]
# CRAWLER_LEVEL_SHARES = [60, 30, 10]

# The class that gives a URL its level. [class path]
# CRAWLER_PRIORITIZER = "crawler.policy.priority.DepthPrioritizer"

# Most hosts held in memory, about 4 kB each. [hosts]
# CRAWLER_MAX_ACTIVE_HOSTS = 20_000

# URLs of a host read from disk at a time. [URLs]
# CRAWLER_HEAD_URLS = 32

# --- How workers share a crawl ---

# The Redis (or file:/path of its URL) that holds the frontier; empty: the data directory. [URL]
# CRAWLER_FRONTIER_URL = ""

# What the crawl's keys begin with, so that one Redis can hold several crawls. [name]
# CRAWLER_FRONTIER_NAME = "gossamer"

# Parts the crawl is split into, for the servers of a cluster; fixed when it begins. [shards]
# CRAWLER_FRONTIER_SHARDS = 64

# This worker's name; empty: the machine's and a random part, kept in the data directory. [name]
# CRAWLER_WORKER_NAME = ""

# How long a worker that is not heard of keeps its URLs; then others get them. [seconds]
# CRAWLER_LEASE_S = 120.0

# Time between two signs of life of a worker. [seconds]
# CRAWLER_HEARTBEAT_S = 10.0

# How long a worker waits at its start for servers that are away, or loading their data. [seconds]
# CRAWLER_REDIS_WAIT_S = 300.0

# The servers' appendfsync; everysec: with several, a page is finished 4 s after its links.
# [everysec or always]
# CRAWLER_REDIS_FSYNC = "everysec"

# Above this a server's new links wait on our disk; auto: 0.8 of its maxmemory, if any. [bytes, or
# auto]
# CRAWLER_REDIS_MAX_BYTES = "auto"

# --- How a page is fetched, and how much of it ---

# The HTTP library; not in a spider's custom_settings, the event loop depends on it. [aiohttp or
# twisted]
# CRAWLER_HTTP_HANDLER = "aiohttp"

# Whether a wrong certificate costs its page. [strict or lenient]
# CRAWLER_TLS = "strict"

# Addresses inside your network that may be fetched from. [list of networks]
# CRAWLER_ALLOW_INSIDE = []

# Longest wait for a connection. [seconds]
# CRAWLER_CONNECT_TIMEOUT_S = 5.0

# Longest fetch, pauses apart; a request's download_timeout can only shorten it. [seconds]
# CRAWLER_TOTAL_TIMEOUT_S = 30.0

# A fetch that brings nothing for so long gives its place to another, and goes on. [seconds]
# CRAWLER_SLOW_AFTER_S = 0.3

# What brings less in that time counts as nothing; it is fetched to its end, too. [bytes]
# CRAWLER_SLOW_BYTES = 300

# Most fetches that so wait for slow hosts, beside CONCURRENT_REQUESTS. [fetches]
# CRAWLER_MAX_WAITING = 1024

# Bytes kept of a page, its headers included. [bytes]
# CRAWLER_HTML_MAX_BYTES = 2_097_152

# Bytes kept of a PDF. [bytes]
# CRAWLER_PDF_MAX_BYTES = 67_108_864

# Bytes kept of XML, which may be a sitemap. [bytes]
# CRAWLER_SITEMAP_MAX_BYTES = 52_428_800

# Bytes kept of anything else. [bytes]
# CRAWLER_OTHER_MAX_BYTES = 2_097_152

# Memory for bodies, from first byte to finished page; if it is full, downloads pause. [bytes]
# CRAWLER_BODIES_MAX_BYTES = 268_435_456

# Answer from the WARC files under this path, not from the network; for tests. [path]
# CRAWLER_REPLAY = ""

# --- What is kept on disk, and how safely ---

# Everything of a crawl is under this directory; JOBDIR counts if this is not set. [path]
# CRAWLER_DATA_DIR = "crawl-data"

# Archive what is fetched, as WARC files. [yes or no]
# CRAWLER_WARC = True

# A WARC file this long is closed and the next begun. [bytes]
# CRAWLER_WARC_MAX_BYTES = 1_073_741_824

# Write text and columns of the pages beside each WARC file, as Parquet. [yes or no]
# CRAWLER_COLUMNS = True

# Where finished files are brought, by fsspec (s3, gs, az...); empty: they stay here. [URL]
# CRAWLER_ARCHIVE_URL = ""

# Finished files that may wait for that store; with more, fetching waits. [bytes]
# CRAWLER_ARCHIVE_WAITING_BYTES = 10_737_418_240

# What is done survives a power cut too, not only the death of the process. [yes or no]
# CRAWLER_FSYNC = True

# With CRAWLER_FSYNC, time between two syncs; a page is done after the next one. [seconds]
# CRAWLER_FSYNC_EVERY_S = 1.0

# --- What a person sees of a crawl ---

# How progress is shown; auto: as fits the output. [auto or line or log or off]
# CRAWLER_PROGRESS = "auto"

# Time between two log lines of progress. [seconds]
# CRAWLER_PROGRESS_LOG_S = 60.0

# Print a summary at the end; summary.json is written in any case. [yes or no]
# CRAWLER_SUMMARY = True

# <!-- to here -->
