-- The prelude of every operation on a feed: its keys, and the check of their types.
--
-- Others push URLs to a feed while the crawl runs, in the formats of scrapy-redis.
-- KEYS[1] <feed>            list, set or zset  what was pushed
-- KEYS[2] {<feed>}:taken    hash               id -> when (epoch s), a blank, the item; schema -> 1
-- KEYS[3] {<feed>}:refused  list               what could not be used and why, newest first
local FEED, TAKEN, REFUSED = KEYS[1], KEYS[2], KEYS[3]
local SCHEMA, MOST_REFUSED = '1', 1000
local now = wall()

local feed_type = redis.call('TYPE', FEED).ok
if feed_type ~= 'none' and feed_type ~= 'list' and feed_type ~= 'set' and feed_type ~= 'zset' then
  return redis.error_reply('FOREIGN the key ' .. FEED .. ' is a ' .. feed_type ..
    '; URLs are pushed to a list, a set or a zset. Remove it')
end
local taken_type = redis.call('TYPE', TAKEN).ok
if taken_type ~= 'none' and
   (taken_type ~= 'hash' or redis.call('HGET', TAKEN, 'schema') ~= SCHEMA) then
  return redis.error_reply('FOREIGN the key ' .. TAKEN .. ' is there already, a ' .. taken_type ..
    ' that this version has not made. Rename it, or remove it')
end
local refused_type = redis.call('TYPE', REFUSED).ok
if refused_type ~= 'none' and refused_type ~= 'list' then
  return redis.error_reply('FOREIGN the key ' .. REFUSED .. ' is a ' .. refused_type ..
    ', not a list. Rename it, or remove it')
end

local function stamped(item) return string.format('%.3f ', now) .. item end

local function unstamped(value)
  local blank = string.find(value, ' ', 1, true)
  return tonumber(string.sub(value, 1, blank - 1)), string.sub(value, blank + 1)
end

local function note_refused(entry)
  redis.call('LPUSH', REFUSED, entry)
  redis.call('LTRIM', REFUSED, 0, MOST_REFUSED - 1)
end
