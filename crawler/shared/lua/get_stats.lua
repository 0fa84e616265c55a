#!lua flags=no-writes,allow-oom
-- Read the statistics of patterns of URLs, of all workers together.
--
-- ARGV  patterns that a host may have; then for each: host, pattern
-- Reply run, then for each: pages 4, new 4, in a row without anything new 4, seconds since 8, and
--       whether the pattern counts among the others of its host 1; '' where nothing is known
local most = tonumber(ARGV[1])
local reply = {run}
for i = 2, #ARGV, 2 do
  local pattern, packed = stats_of(stats_key(ARGV[i]), ARGV[i + 1], most)
  if packed then
    local pages, new, barren, at = struct.unpack('<I4I4I4d', packed)
    local is_other = pattern == OTHER_PATTERNS and 1 or 0
    packed = struct.pack('<I4I4I4dB', pages, new, barren, now - at, is_other)
  end
  reply[#reply + 1] = packed or ''
end
return reply
