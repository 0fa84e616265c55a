#!lua flags=allow-oom
-- Add pages to the statistics of patterns of URLs, or note that one of a stopped pattern is tried.
--
-- ARGV  patterns that a host may have; then for each: host, pattern, pages, how many of them were
--       new, how many at their end were not. No pages: one is tried
-- Reply run
-- A call that is sent twice counts twice; then a pattern is stopped some pages early.
local most = tonumber(ARGV[1])
for i = 2, #ARGV, 5 do
  local key = yields_key(ARGV[i])
  local pattern, packed = yield_of(key, ARGV[i + 1], most)
  local came, came_new = tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local pages, new, barren = 0, 0, 0
  if packed then pages, new, barren = struct.unpack('<I4I4I4', packed) end
  if pattern ~= OTHER_PATTERNS then pages = pages + came end
  barren = (came_new > 0 and 0 or barren) + tonumber(ARGV[i + 4])
  redis.call('HSET', key, pattern, struct.pack('<I4I4I4d', pages, new + came_new, barren, now))
end
return {run}
