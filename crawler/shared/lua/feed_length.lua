#!lua flags=no-writes,allow-oom
-- Count the items that wait, and those that are taken and not yet in the frontier.
--
-- Reply both
local lengths = {
  none = function() return 0 end,
  list = function() return redis.call('LLEN', FEED) end,
  set = function() return redis.call('SCARD', FEED) end,
  zset = function() return redis.call('ZCARD', FEED) end,
}
return {lengths[feed_type](), math.max(0, redis.call('HLEN', TAKEN) - 1)}
