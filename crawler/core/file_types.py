"""Names of files that hold neither text nor links, and so are not worth a visit.

Rule: an extension is only a guess at a type. What may hold text (pdf, txt, xml, office
documents) is not here; what a page needs to look well, or a person to listen to, is.
"""

from __future__ import annotations

from typing import Final

IMAGES: Final = (
    *("jpg", "jpeg", "jpe", "png", "gif", "bmp", "tif", "tiff", "webp", "avif", "heic", "heif"),
    *("ico", "svg", "svgz", "psd", "ai", "eps", "raw", "jp2", "jxl", "xcf", "dng", "cr2", "nef"),
)
SOUND: Final = (
    *("mp3", "m4a", "aac", "ogg", "oga", "opus", "wav", "wma", "flac", "aiff", "mid", "midi"),
    *("amr", "ra", "au"),
)
FILMS: Final = (
    *("mp4", "m4v", "mov", "avi", "wmv", "mpg", "mpeg", "mkv", "webm", "ogv", "flv", "3gp"),
    *("asf", "vob", "ts", "m3u8", "mpd", "swf"),
)
ARCHIVES: Final = (
    *("zip", "gz", "tgz", "bz2", "tbz2", "xz", "txz", "zst", "7z", "rar", "tar", "lz", "lzma", "z"),
    *("cab", "iso", "img", "dmg", "pkg", "deb", "rpm", "apk", "ipa", "jar", "war", "whl", "egg"),
    *("gem", "crx", "xpi", "torrent", "warc", "wacz"),
)
PROGRAMS: Final = (
    *("exe", "msi", "dll", "so", "bin", "bat", "com", "class", "pyc", "o", "a", "wasm", "vhd"),
    *("vmdk", "ova", "qcow2", "sqlite", "db", "mdb", "parquet", "npy", "pkl", "h5"),
)
DRESS: Final = ("css", "js", "mjs", "map", "woff", "woff2", "ttf", "otf", "eot", "cur")

UNWANTED: Final = IMAGES + SOUND + FILMS + ARCHIVES + PROGRAMS + DRESS
