"""Names of files that hold neither text nor links, and so are not worth a visit.

Rule: an extension is only a guess at a type. What may hold text (pdf, txt, xml, office
documents) is not here, nor what pages are named after: example.com, Node.js, U.S.A.
"""

from __future__ import annotations

from typing import Final

_IMAGES: Final = """
    jpg jpeg jpe png gif bmp tif tiff webp avif heic heif ico svg svgz psd eps jp2 jxl xcf dng
    cr2 nef"""
_SOUND: Final = "mp3 m4a aac ogg oga opus wav wma flac aiff mid midi amr"
_FILMS: Final = "mp4 m4v mov avi wmv mpg mpeg mkv webm ogv flv 3gp asf vob m3u8 mpd swf"
_ARCHIVES: Final = """
    zip gz tgz bz2 tbz2 xz txz zst 7z rar tar lz lzma cab iso img dmg pkg deb rpm apk ipa jar
    war whl egg gem crx xpi torrent warc wacz"""
_PROGRAMS: Final = """
    exe msi dll bin bat pyc wasm vhd vmdk ova qcow2 sqlite mdb parquet npy pkl h5"""
_DRESS: Final = "css woff woff2 ttf otf eot cur"

UNWANTED: Final = tuple(" ".join((_IMAGES, _SOUND, _FILMS, _ARCHIVES, _PROGRAMS, _DRESS)).split())
