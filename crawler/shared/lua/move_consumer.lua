#!lua flags=allow-oom
-- Store how far a consumer has taken the feed, and remove what all have taken.
--
-- ARGV  name, number of the last entry that it has taken, JSON of this
-- Reply the number up to which entries are removed; if it has not taken these, nothing was stored
if tonumber(ARGV[2]) >= sent('trimmed') then
  redis.call('HSET', TAKEN, ARGV[1], ARGV[3])
  trim()
end
return string.format('%.0f', sent('trimmed'))
