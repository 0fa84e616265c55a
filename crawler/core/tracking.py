"""Query parameters that follow the reader about and never choose what a page shows.

Rule: exact names of one vendor's click or campaign marks, those that privacy tools agree on.
A name that some site uses for content ("ref", "source", "mc") is not here. The list is our
own: none of the published ones, whose licences differ from ours, was copied.
"""

from __future__ import annotations

from typing import Final

_NAMES: Final = """
gclid gclsrc dclid gbraid wbraid srsltid _ga _gl
fbclid igshid igsh
msclkid twclid ttclid li_fat_id epik
yclid ysclid _openstat
mc_cid mc_eid mkt_tok
_hsenc _hsmi __hstc __hssc __hsfp hsctatracking
oly_anon_id oly_enc_id vero_id vero_conv rb_clickid s_cid wickedid irclickid
ml_subscriber ml_subscriber_hash _branch_match_id _kx
bsft_aaid bsft_clkid bsft_ek bsft_eid bsft_mid bsft_mime_type bsft_tv bsft_uid
mtm_campaign mtm_cid mtm_content mtm_group mtm_keyword mtm_medium mtm_placement mtm_source
pk_campaign pk_cid pk_content pk_keyword pk_kwd pk_medium pk_source
itm_campaign itm_content itm_medium itm_source itm_term
"""
TRACKING_NAMES: Final = frozenset(_NAMES.split())
"""In lower case. By line: Google, Meta, other advertisers, Yandex, mail campaigns, HubSpot,
affiliate and mail networks (2), Blueshift, Matomo, Matomo under its old name, inner campaigns."""

TRACKING_PREFIX: Final = "utm_"
"""Its members are coined freely (utm_id, utm_social, utm_brand), and all mean a campaign."""


def is_tracking(name: str) -> bool:
    """Is *name*, of a query parameter, one of these?"""
    name = name.lower()
    return name in TRACKING_NAMES or name.startswith(TRACKING_PREFIX)
