#!lua
-- Take up to `limit` pushed items; first those of other workers whose lease has expired.
-- No allow-oom: if memory is used up, the items stay in the feed.
--
-- ARGV  token (never used before), limit, lease_s, most bytes of an item
-- Reply how many were too long, and refused; then for each taken: id, item
local token, limit, lease_s, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local MOST_REPLY = 1048576
local reply = {0}
local bytes = 0

local function take(item)
  local id = token .. '.' .. (#reply + 1) / 2
  redis.call('HSET', TAKEN, 'schema', SCHEMA, id, stamped(item))
  reply[#reply + 1], reply[#reply + 2] = id, item
  bytes = bytes + #item
end

-- There is no index of old items. Each worker holds few, and every call looks at a few at random,
-- so all are looked at soon.
local sampled = redis.call('HRANDFIELD', TAKEN, math.min(limit, 50), 'WITHVALUES')
for i = 1, #sampled, 2 do
  if sampled[i] ~= 'schema' then
    local at, item = unstamped(sampled[i + 1])
    if now - at >= lease_s then
      redis.call('HDEL', TAKEN, sampled[i])
      take(item)
    end
  end
end

local pops = {
  none = function() return false end,
  list = function() return redis.call('LPOP', FEED) end,
  set = function() return redis.call('SPOP', FEED) end,
  -- The highest score first, as scrapy-redis has it.
  zset = function() return redis.call('ZPOPMAX', FEED)[1] end,
}
for _ = (#reply + 1) / 2, limit do
  local item = bytes < MOST_REPLY and pops[feed_type]()
  if not item then break end
  if #item > most then
    reply[1] = reply[1] + 1
    note_refused(cjson.encode({why = 'longer than ' .. most .. ' bytes',
      item = string.gsub(string.sub(item, 1, 200), '[^\32-\126]', '?')}))
  else
    take(item)
  end
end
return reply
