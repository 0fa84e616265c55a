"""What an owner asks of a site, as SQL for DuckDB over the columns and outcomes of a crawl.

Rule: no query holds anything of a page. `gossamer report site` runs them, and docs/queries.md is
made of them, so both give the same rows. They read two views, `captures` and `outcomes`: the
Parquet files as they are. Each of TABLES is made of those before it, each finding of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CAPTURES: Final = "captures"
OUTCOMES: Final = "outcomes"
INDEXED: Final = "indexed"  # url, at and status of what the indexes of the archive list
# What a browser fetches to show a page, by the words of LinkKind.
_EMBEDDED: Final = "('style', 'script', 'image', 'font', 'media', 'manifest', 'frame', 'iframe')"
_FOLLOWED: Final = "('a', 'area', 'refresh', 'text')"  # what a reader follows
MOST_HOPS: Final = 20  # of redirects: browsers follow as many
_MOST_STEPS: Final = (
    1000  # from a seed: a calendar may have a million, and each takes a look at all
)


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view that findings are asked of."""

    name: str
    meaning: str
    sql: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One question, and its answer as a table."""

    name: str  # of its CSV file, too
    title: str
    question: str
    sql: str
    needs: frozenset[str] = frozenset()  # of NEEDS: without them it cannot be told
    figures: int = 99  # from this column on there are figures
    is_fault: bool = True  # else it tells how the site is


NEEDS: Final = {
    "outcomes": "there are no outcomes (CRAWLER_OUTCOME_TABLE was off, or the crawl has not ended)",
    "about": "the columns of the group `about` were off (CRAWLER_COLUMN_GROUPS)",
    "sitemap": "no sitemap was read",
}
"""What a crawl may lack, in words for the user."""

SAME_FORM: Final = "same_form"

TABLES: Final = (
    Table(
        SAME_FORM,
        "The form in which URLs are compared that the crawl counts as one: `gossamer report site`"
        " puts its own here, without `utm_source` and the like.",
        """
CREATE MACRO same_form(url) AS url;
""",
    ),
    Table(
        "fates",
        "The last outcome of each URL. Broken is what leads nowhere: an answer of 400 or more, none"
        " at all, redirects without an end, a page that only says that there is none. Of a checked"
        " external link its result counts: many hosts answer robots by 403.",
        """
CREATE TABLE fates AS
WITH last AS (
    SELECT url, unnest(arg_max({fate: fate, status: status, reason: reason, failure: failure,
                                seconds: seconds, bytes: bytes, depth: depth, seed: seed,
                                external: external}, "at"))
    FROM outcomes GROUP BY url
)
SELECT *,
       CASE WHEN status >= 400 THEN status::VARCHAR
            WHEN reason = 'soft_404' THEN 'says that it is not there'
            ELSE coalesce(failure, status::VARCHAR, reason, fate) END AS why,
       coalesce(external = 'broken' OR external IS NULL AND status >= 400, false)
       OR coalesce(reason = 'soft_404', false)
       OR (external IS NULL OR fate = 'dead')
          AND coalesce(failure IN ('timeout', 'connect', 'dns', 'tls', 'protocol', 'disconnect',
                                   'redirects'), false) AS is_broken
FROM (
    -- Where a host cannot be reached, its robots.txt is what was asked for.
    SELECT * REPLACE (CASE WHEN failure = 'robots_unreachable' AND reason LIKE '%: %'
                           THEN split_part(reason, ': ', 2) ELSE failure END AS failure)
    FROM last
);
""",
    ),
    Table(
        "ways",
        "Where each redirect leads in the end, over how many hops.",
        f"""
CREATE TABLE ways AS
WITH RECURSIVE moves AS (
    SELECT url, arg_max(target, "at") AS target FROM outcomes
    WHERE target IS NOT NULL AND (fate = 'moved' OR status BETWEEN 300 AND 399)
      AND url IN (SELECT url FROM fates WHERE fate = 'moved' OR status BETWEEN 300 AND 399)
    GROUP BY url
), steps AS (
    SELECT url, target AS last, 1 AS hops, [url, target] AS way, url = target AS is_loop FROM moves
    UNION ALL
    SELECT steps.url, target, hops + 1, list_append(way, target), list_contains(way, target)
    FROM steps JOIN moves ON moves.url = steps.last
    WHERE NOT is_loop AND hops < {MOST_HOPS}
)
SELECT url, unnest(arg_max({{last: last, hops: hops, way: way, is_loop: is_loop}}, hops))
FROM steps GROUP BY url;
""",
    ),
    Table(
        "pages",
        "The newest capture of each page that is still there. An exact copy has no title and no"
        " links: they are in the row of its `original`.",
        """
CREATE TABLE pages AS
WITH newest AS (
    SELECT url, arg_max({digest: digest}, fetched_at).digest AS digest FROM captures GROUP BY url
), chosen AS (
    SELECT url, unnest(arg_max({filename: filename, file_row_number: file_row_number},
        {same: captures.digest IS NOT DISTINCT FROM newest.digest,
         own: original IS DISTINCT FROM url OR bits IS NOT NULL, fetched_at: fetched_at}))
    FROM captures JOIN newest USING (url) GROUP BY url
), kept AS (
    SELECT url, filename, file_row_number, status, media_type, title, description, canonical,
           original, bits, depth, robots, robots_header, truncated,
           coalesce(noindex, false) AS is_hidden,
           coalesce(noindex, false)
           OR regexp_matches(concat_ws(',', robots, robots_header), '\\b(noindex|none)\\b', 'i')
               AS is_noindex,
           media_type IN ('text/html', 'application/xhtml+xml') AS is_html,
           original IS NOT NULL AND bits IS NULL AS is_copy
    FROM captures JOIN chosen USING (url, filename, file_row_number)
)
SELECT kept.*,
       is_html AND NOT is_noindex AND NOT is_copy AND coalesce(canonical = url, true)
           AS is_indexable
FROM kept LEFT JOIN fates USING (url)
WHERE fates.url IS NULL OR NOT (fates.is_broken OR fates.fate = 'moved');
""",
    ),
    Table(
        "links",
        "Each link of these pages.",
        """
CREATE VIEW links AS
SELECT page, link.url, link.kind, link.rel, link.text FROM (
    SELECT url AS page, unnest(outlinks) AS link
    FROM captures JOIN pages USING (url, filename, file_row_number)
);
""",
    ),
    Table(
        "targets",
        "What is linked to, how often, and how often in a way that a reader can follow.",
        f"""
CREATE TABLE targets AS
SELECT url, count(*) AS links,
       count(*) FILTER (kind IN {_FOLLOWED} AND page <> url) AS followed,
       count(*) FILTER (kind = 'listed') AS listed,
       count(*) FILTER (kind IN {_EMBEDDED}) AS embedded,
       min(kind) AS kind, min(page) AS page
FROM links GROUP BY url;
""",
    ),
    Table(
        "spellings",
        "Links to URLs that were not fetched because the crawl counts them as one that was.",
        """
CREATE TABLE spellings AS
WITH loose AS (SELECT targets.url FROM targets ANTI JOIN fates USING (url))
SELECT loose.url, min(fates.url) AS same
FROM loose JOIN fates ON same_form(loose.url) = same_form(fates.url) GROUP BY loose.url;
INSERT INTO fates SELECT spellings.url, fates.* EXCLUDE (url)
FROM spellings JOIN fates ON fates.url = same;
INSERT INTO ways SELECT spellings.url, ways.* EXCLUDE (url)
FROM spellings JOIN ways ON ways.url = same;
""",
    ),
    Table(
        "broken",
        "URLs that are broken, or redirect to one that is.",
        """
CREATE TABLE broken AS
SELECT fates.url, ways.hops, ends.url AS last,
       CASE WHEN ways.is_loop THEN 'redirect loop' ELSE ends.why END AS why
FROM fates LEFT JOIN ways USING (url)
JOIN fates AS ends ON ends.url = coalesce(ways.last, fates.url)
WHERE ends.is_broken OR ways.is_loop;
""",
    ),
    Table(
        "hosts",
        "The hosts that were crawled, with their port. A frame fetched for a page makes none.",
        """
CREATE TABLE hosts AS
SELECT DISTINCT split_part(url, '/', 3) AS host FROM pages
LEFT JOIN fates USING (url) LEFT JOIN targets USING (url)
WHERE is_html AND (
    coalesce(fates.depth, pages.depth, 0) = 0 OR targets.followed + targets.listed > 0
    OR url IN (SELECT last FROM ways)
);
""",
    ),
    Table(
        "depths",
        "Over how many links a reader comes from a seed to each page, on the shortest way. The"
        " `depth` of columns and outcomes is that of the way on which a URL was found first.",
        f"""
CREATE TABLE numbers AS
SELECT url, row_number() OVER ()::INTEGER AS number,
       url IN (SELECT coalesce(ways.last, fates.url) FROM fates LEFT JOIN ways USING (url)
               WHERE fates.depth = 0) OR coalesce(depth = 0, false) AS is_seed
FROM pages WHERE is_html;
CREATE TABLE goals AS
SELECT targets.url, number
FROM targets LEFT JOIN ways USING (url) LEFT JOIN spellings USING (url)
JOIN numbers ON numbers.url = coalesce(ways.last, spellings.same, targets.url)
WHERE followed > 0;
CREATE TABLE steps AS
SELECT page, list(number) AS targets FROM (
    SELECT number AS page, unnest(outlinks) AS link
    FROM captures JOIN pages USING (url, filename, file_row_number) JOIN numbers USING (url)
) JOIN goals ON goals.url = link.url
WHERE link.kind IN {_FOLLOWED} GROUP BY page;
CREATE TABLE depths AS
WITH RECURSIVE reached(number, depth) USING KEY (number) AS (
    SELECT number, 0 FROM numbers WHERE is_seed
    UNION
    SELECT target, min(depth) + 1 FROM (
        SELECT unnest(targets) AS target, depth FROM reached JOIN steps ON page = number
        WHERE depth < {_MOST_STEPS}
    ) WHERE target NOT IN (SELECT number FROM recurring.reached) GROUP BY target
)
SELECT url, depth FROM reached JOIN numbers USING (number);
""",
    ),
    Table(
        "noted",
        "The links to what is broken, moved twice or more, or forbidden, and canonical ones.",
        """
CREATE TABLE noted AS
WITH bad AS (
    SELECT url FROM broken
    UNION SELECT url FROM ways WHERE hops > 1
    UNION SELECT url FROM fates WHERE starts_with(reason, 'robots.txt') AND status IS NULL
)
SELECT links.* FROM links LEFT JOIN bad USING (url)
WHERE bad.url IS NOT NULL OR links.kind = 'canonical';
""",
    ),
)

FINDINGS: Final = (
    Finding(
        "broken-links",
        "Broken links",
        "Which links are broken, on which pages, with which words?",
        """
SELECT url AS link, why, page, text, kind,
       list_contains(string_split(rel, ' '), 'nofollow') AS nofollow,
       CASE WHEN last <> url THEN last END AS by_way_of
FROM noted JOIN broken USING (url)
ORDER BY link, page, kind;
""",
        frozenset({"outcomes"}),
    ),
    Finding(
        "redirects",
        "Redirect chains",
        "Which redirects lead on to another redirect, where do they end, and who links to them?",
        """
SELECT url AS first, hops, last,
       CASE WHEN is_loop THEN 'redirect loop' ELSE coalesce(fates.why, 'not fetched') END AS ends,
       array_to_string(way, ' -> ') AS way, noted.page, noted.text
FROM ways LEFT JOIN noted USING (url) LEFT JOIN fates ON fates.url = ways.last
WHERE (hops > 1 OR is_loop)
  AND (noted.page IS NOT NULL OR ways.url NOT IN (SELECT unnest(way[2:]) FROM ways))
ORDER BY hops DESC, first, page;
""",
        frozenset({"outcomes"}),
    ),
    Finding(
        "titles",
        "Titles",
        "Which titles stand on several pages, and which pages have none?",
        """
SELECT CASE WHEN title IS NULL THEN 'missing' ELSE 'duplicate' END AS fault,
       title, count(*) OVER (PARTITION BY title) AS pages, url
FROM pages AS page WHERE is_indexable
QUALIFY title IS NULL OR pages > 1
ORDER BY fault DESC, pages DESC, title, url;
""",
    ),
    Finding(
        "descriptions",
        "Descriptions",
        "Which descriptions stand on several pages, and which pages have none?",
        """
SELECT CASE WHEN description IS NULL THEN 'missing' ELSE 'duplicate' END AS fault,
       description, count(*) OVER (PARTITION BY description) AS pages, url
FROM pages AS page WHERE is_indexable
QUALIFY description IS NULL OR pages > 1
ORDER BY fault DESC, pages DESC, description, url;
""",
        frozenset({"about"}),
    ),
    Finding(
        "copies",
        "Copies",
        "Which pages have the same content as another, to the letter or nearly?",
        """
SELECT url, original, CASE WHEN bits IS NULL THEN 'exact' ELSE 'near' END AS copy
FROM pages WHERE original <> url AND is_html AND NOT is_noindex
ORDER BY original, url;
""",
    ),
    Finding(
        "canonicals",
        "Canonical URLs",
        "Which canonical URLs are no page, lead on, or contradict what else is said?",
        """
WITH named AS (
    SELECT url, canonical, is_noindex FROM pages WHERE is_html AND canonical <> url
), conflicts AS (
    SELECT page AS url, string_agg(DISTINCT noted.url, ' ' ORDER BY noted.url) AS canonical,
           'several' AS conflict, NULL AS detail
    FROM noted WHERE kind = 'canonical' GROUP BY page HAVING count(DISTINCT noted.url) > 1
    UNION ALL
    SELECT url, canonical, 'other host', NULL
    FROM named WHERE split_part(canonical, '/', 3) <> split_part(url, '/', 3)
    UNION ALL
    SELECT named.url, canonical, 'broken', why FROM named JOIN broken ON broken.url = canonical
    UNION ALL
    SELECT named.url, canonical, 'redirect', last FROM named JOIN ways ON ways.url = canonical
    UNION ALL
    SELECT named.url, named.canonical, 'noindex', NULL
    FROM named JOIN pages ON pages.url = named.canonical WHERE pages.is_noindex
    UNION ALL
    SELECT url, canonical, 'noindex itself', NULL FROM named WHERE is_noindex
    UNION ALL
    SELECT named.url, named.canonical, 'names another', pages.canonical
    FROM named JOIN pages ON pages.url = named.canonical WHERE pages.canonical <> pages.url
    UNION ALL
    SELECT named.url, named.canonical, 'not fetched', fates.reason
    FROM named LEFT JOIN fates ON fates.url = named.canonical
    LEFT JOIN pages ON pages.url = named.canonical
    WHERE pages.url IS NULL AND fates.status IS NULL AND NOT coalesce(fates.is_broken, false)
      AND split_part(named.canonical, '/', 3) IN (SELECT host FROM hosts)
)
SELECT url, canonical, conflict, detail FROM conflicts ORDER BY url, conflict;
""",
    ),
    Finding(
        "orphans",
        "Orphans",
        "Which pages does a sitemap list, to which no page links?",
        """
WITH linked AS (
    SELECT coalesce(same, url) AS url
    FROM targets LEFT JOIN spellings USING (url) WHERE followed > 0
    UNION SELECT unnest(way) FROM ways JOIN targets USING (url) WHERE followed > 0
)
SELECT targets.url, coalesce(fates.status::VARCHAR, why, 'not fetched') AS answer
FROM targets LEFT JOIN fates USING (url) LEFT JOIN spellings USING (url)
WHERE listed > 0 AND coalesce(same, url) NOT IN (SELECT url FROM linked)
  AND seed IS DISTINCT FROM url
ORDER BY url;
""",
        frozenset({"sitemap"}),
    ),
    Finding(
        "unlisted",
        "In no sitemap",
        "Which pages does no sitemap list?",
        """
SELECT pages.url, coalesce(links, 0) AS links FROM pages LEFT JOIN targets USING (url)
WHERE is_indexable AND coalesce(listed, 0) = 0
  AND split_part(url, '/', 3) IN (SELECT host FROM hosts)
ORDER BY url;
""",
        frozenset({"sitemap"}),
        figures=1,
    ),
    Finding(
        "noindex",
        "Noindex",
        "Which pages are marked noindex, and how?",
        """
SELECT url, robots, robots_header FROM pages WHERE is_noindex ORDER BY url;
""",
        is_fault=False,
    ),
    Finding(
        "forbidden",
        "Forbidden by robots.txt",
        "To what do pages link that robots.txt forbids?",
        """
SELECT url, fates.reason AS rule, count(*) AS links, min(page) AS one_page
FROM noted JOIN fates USING (url)
WHERE starts_with(fates.reason, 'robots.txt') AND fates.status IS NULL AND NOT is_broken
  AND external IS NULL
GROUP BY url, rule ORDER BY url;
""",
        frozenset({"outcomes"}),
        is_fault=False,
    ),
    Finding(
        "slow",
        "Slow pages",
        "Which pages took a second or more?",
        """
SELECT url, round(seconds::DOUBLE, 2) AS seconds, bytes
FROM pages JOIN fates USING (url) WHERE seconds >= 1
ORDER BY seconds DESC, url;
""",
        frozenset({"outcomes"}),
        figures=1,
    ),
    Finding(
        "depth",
        "Depth",
        "How deep do the pages lie?",
        """
SELECT depths.depth, count(*) AS pages, min(url) AS one_page
FROM pages LEFT JOIN depths USING (url) WHERE is_html
GROUP BY 1 ORDER BY 1;
""",
        is_fault=False,
    ),
    Finding(
        "external",
        "External links",
        "Where do links lead out of what was crawled, and is anything there?",
        """
SELECT targets.url,
       CASE WHEN fates.url IS NULL THEN 'not checked' WHEN broken.url IS NOT NULL THEN 'broken'
            ELSE coalesce(external, 'fetched') END AS result,
       coalesce(broken.why, fates.why) AS answer, links, targets.page AS one_page, kind
FROM targets LEFT JOIN fates USING (url) LEFT JOIN broken USING (url)
WHERE split_part(url, '/', 3) NOT IN (SELECT host FROM hosts)
ORDER BY broken.url IS NULL, links DESC, url;
""",
        is_fault=False,
    ),
)

REQUISITES: Final = (
    Table(
        "beside",
        "What came for pages that a browser was making: it has no outcome and no columns.",
        """
CREATE TABLE beside AS
SELECT url, arg_max(status, "at") AS status FROM indexed ANTI JOIN fates USING (url)
WHERE url IN (SELECT url FROM targets WHERE embedded > 0) GROUP BY url;
""",
    ),
    Table(
        "lost",
        "What pages need to be shown and the archive has not, and why.",
        """
CREATE TABLE lost AS
SELECT targets.url, targets.kind, coalesce(ends.fate IN ('dead', 'retry'), false) AS has_failed,
       CASE WHEN own.url IS NULL THEN coalesce(beside.status::VARCHAR, 'never fetched')
            WHEN ways.is_loop THEN 'redirect loop'
            WHEN ends.url IS NULL THEN 'redirects to what was never fetched'
            WHEN pages.truncated IS NOT NULL THEN 'cut short: ' || pages.truncated
            WHEN ends.reason = 'noindex' THEN 'noindex'
            ELSE ends.why END AS why
FROM targets LEFT JOIN fates AS own USING (url) LEFT JOIN ways USING (url)
LEFT JOIN fates AS ends ON ends.url = coalesce(ways.last, targets.url)
LEFT JOIN pages ON pages.url = ends.url LEFT JOIN beside ON beside.url = targets.url
WHERE embedded > 0 AND NOT coalesce(beside.status < 400, false) AND (
    ends.url IS NULL OR ends.status IS NULL OR ends.is_broken OR pages.truncated IS NOT NULL
    OR ends.status NOT BETWEEN 200 AND 299 AND ends.status <> 304 OR ends.reason = 'noindex'
);
""",
    ),
    Table(
        "lacking",
        "The same, and whatever needs it in turn: style sheets and frames, five hops at most.",
        f"""
CREATE TABLE lacking AS
WITH RECURSIVE names AS (
    SELECT url, url AS name FROM pages UNION SELECT last, url FROM ways
), inner_links AS (
    SELECT names.name AS page, links.url FROM links JOIN names ON names.url = links.page
    JOIN targets ON targets.url = names.name
    WHERE links.kind IN {_EMBEDDED} AND embedded > 0
), steps AS (
    SELECT url AS missing, url, 0 AS hops FROM lost
    UNION
    SELECT missing, inner_links.page, hops + 1
    FROM steps JOIN inner_links USING (url) WHERE hops < 5
)
SELECT DISTINCT missing, url FROM steps;
""",
    ),
)

MISSING: Final = Finding(
    "missing",
    "What is missing of whole pages",
    "Which pages lack what they need to be shown, and why?",
    f"""
SELECT links.page, missing, lost.kind, why, has_failed,
       min(CASE WHEN links.url <> missing THEN links.url END) AS by_way_of
FROM links JOIN lacking USING (url) JOIN lost ON lost.url = missing
JOIN pages ON pages.url = links.page LEFT JOIN targets ON targets.url = links.page
WHERE links.kind IN {_EMBEDDED} AND is_html AND NOT is_hidden
  AND NOT coalesce(embedded > 0 AND followed + listed = 0, false)
GROUP BY ALL
ORDER BY links.page, missing;
""",
    frozenset({"outcomes"}),
)
