-- Epoch seconds by this server's clock: workers' own clocks decide nothing.
local function wall()
  local t = redis.call('TIME')
  return tonumber(t[1]) + tonumber(t[2]) / 1000000
end
