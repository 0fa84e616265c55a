-- Milliseconds by this server's clock: the clocks of workers decide nothing about another's lease.
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
