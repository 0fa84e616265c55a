#!lua flags=allow-oom
-- Add pages to the statistics of patterns of URLs, or note that one of a stopped pattern is tried.
--
-- ARGV  patterns that a host may have; then for each: host, pattern, pages, how many of them were
--       new, how many at their end were not. No pages: one is tried
-- Reply run
-- A call that is sent twice counts twice; then a pattern is stopped some pages early.
local most = tonumber(ARGV[1])
for i = 2, #ARGV, 5 do
  local key = stats_key(ARGV[i])
  local pattern, packed = stats_of(key, ARGV[i + 1], most)
  local pages_added, new_added = tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local pages, new, barren = 0, 0, 0
  if packed then pages, new, barren = struct.unpack('<I4I4I4', packed) end
  if pattern ~= OTHER_PATTERNS then pages = pages + pages_added end
  barren = (new_added > 0 and 0 or barren) + tonumber(ARGV[i + 4])
  redis.call('HSET', key, pattern, struct.pack('<I4I4I4d', pages, new + new_added, barren, now))
end
return {run}
