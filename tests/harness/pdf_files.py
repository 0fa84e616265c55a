"""PDFs built by hand: small, and exactly as broken as a test wants them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

FONT = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
CATALOG = "<< /Type /Catalog /Pages 2 0 R /Lang (de-AT) >>"


def pdf(objects: Sequence[str], trailer: str = "") -> bytes:
    """Numbered from 1; the first is the catalogue."""
    written, offsets = b"%PDF-1.7\n", []
    for number, one in enumerate(objects, 1):
        offsets.append(len(written))
        written += f"{number} 0 obj\n{one}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    return written + (
        f"xref\n0 {size}\n0000000000 65535 f \n{table}"
        f"trailer\n<< /Size {size} /Root 1 0 R {trailer} >>\nstartxref\n{len(written)}\n%%EOF\n"
    ).encode("latin-1")


def stream(content: str) -> str:
    return f"<< /Length {len(content)} >>\nstream\n{content}\nendstream"


def shown(text: str) -> str:
    """A page's content that shows lines of text."""
    lines = " ".join(f"({line}) Tj T*" for line in text.split("\n"))
    return stream(f"BT /F1 12 Tf 14 TL 72 700 Td {lines} ET")


def story(text: str, *urls: str, trailer: str = "", extra: Sequence[str] = ()) -> bytes:
    """One page, with link annotations."""
    annotations = " ".join(
        f"<< /Type /Annot /Subtype /Link /Rect [0 0 9 9] /A << /S /URI /URI ({url}) >> >>"
        for url in urls
    )
    page = (
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        f"/Resources << /Font << /F1 5 0 R >> >> /Annots [{annotations}] >>"
    )
    tree = "<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
    return pdf([CATALOG, tree, page, shown(text), FONT, *extra], trailer)


def tree_in_itself() -> bytes:
    """Its page tree has itself for a child, and claims a million pages."""
    return pdf([CATALOG, "<< /Type /Pages /Kids [2 0 R 2 0 R 2 0 R] /Count 1000000 >>"])


def form_in_itself() -> bytes:
    """The picture on its page shows itself."""
    page = (
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        "/Resources << /XObject << /X 5 0 R >> >> >>"
    )
    drawn = "/X Do /X Do"
    form = (
        "<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 5 0 R >> >>"
        f" /Length {len(drawn)} >>\nstream\n{drawn}\nendstream"
    )
    tree = "<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
    return pdf([CATALOG, tree, page, stream("/X Do"), form])


def bomb(megabytes: int) -> bytes:
    """Its page's content is packed, and so long when it is unpacked. (After a full flush deflate
    remembers nothing, so one block can be repeated.)"""
    packer, head = zlib.compressobj(wbits=-15), zlib.compress(b"")[:2]
    piece = b"BT (a) Tj ET " * (1024 * 1024 // 13)
    block = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = 1
    for _ in range(megabytes):
        checksum = zlib.adler32(piece, checksum)
    packed = head + block * megabytes + packer.flush() + checksum.to_bytes(4, "big")
    content = f"<< /Length {len(packed)} /Filter /FlateDecode >>\nstream\n"
    page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R >>"
    tree = "<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
    return pdf([CATALOG, tree, page, content + packed.decode("latin-1") + "\nendstream"])


def pages_text(count: int) -> bytes:
    """One page, shown *count* times."""
    page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>"
    tree = f"<< /Type /Pages /Kids [{'3 0 R ' * count}] /Count {count} >>"
    return pdf([CATALOG, tree, page])


def forms_for_ever() -> bytes:
    """Its page shows a form that shows another ten times, and that one another ten times: 10^15
    letters."""
    page = (
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        "/Resources << /XObject << /X 5 0 R >> >> >>"
    )
    tree = "<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
    return pdf([CATALOG, tree, page, stream("/X Do"), *(_ten_of(6 + n) for n in range(15))])


def _ten_of(number: int) -> str:
    drawn = "/X Do " * 10
    inner = f"/Resources << /XObject << /X {number} 0 R >> >> /Length {len(drawn)}"
    form = f"<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] {inner} >>"
    return f"{form}\nstream\n{drawn}\nendstream"


def outlines_in_themselves() -> bytes:
    """Its outline has itself for a child and for a neighbour; so has its names' tree."""
    catalog = CATALOG[:-2] + "/Outlines 6 0 R /Names << /Dests 7 0 R >> >>"
    tree = "<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
    page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>"
    outline = "<< /Type /Outlines /First 6 0 R /Last 6 0 R /Next 6 0 R /Count 99 /Title (a) >>"
    names = "<< /Kids [7 0 R 7 0 R] /Limits [(a) (z)] >>"
    return pdf([catalog, tree, page, shown("a"), FONT, outline, names])


def objects_in_themselves() -> bytes:
    """What it is made of is in a packed stream, which is in that stream; and the table of its
    objects was, it says, preceded by itself."""
    inside = "8 0 2 70 << /Type /ObjStm /N 2 /First 9 /Extends 8 0 R >> << /Type /Pages /Kids [] >>"
    packed = f"<< /Type /ObjStm /N 2 /First 9 /Extends 8 0 R /Length {len(inside)} >>"
    held = [CATALOG, "8 0 R", "3 0 R", "4 0 R", "5 0 R", "7 0 R", "6 0 R"]
    made = pdf([*held, f"{packed}\nstream\n{inside}\nendstream"])
    begin = made.rindex(b"startxref") + len(b"startxref\n")
    table = made[begin : made.index(b"\n", begin)]
    return made.replace(b"/Root 1 0 R", b"/Root 1 0 R /Prev " + table)
