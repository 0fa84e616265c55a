-- The prelude of the operations on the change feed of a crawl.
--
-- KEYS[1] <name>:changes           stream  entries: number-0 -> e: JSON without the number
-- KEYS[2] {<name>:changes}:sent    hash    feed of a worker (it has a slash) -> number of its last
--                                          entry that is in the stream
--                                          last -> the last number that was given
--                                          trimmed -> up to which number all consumers took all
--                                          run -> of the server that gave the last number
-- KEYS[3] {<name>:changes}:taken   hash    consumer -> JSON with its position, taken
-- KEYS[4] {<name>:changes}:purged  stream  only while a script runs
local STREAM, SENT, TAKEN = KEYS[1], KEYS[2], KEYS[3]

local function sent(field) return tonumber(redis.call('HGET', SENT, field) or 0) end

local function id(number) return string.format('%.0f-0', number) end

-- Return a function that adds entries under the next numbers. Those that a server has lost, its last
-- second mostly, may have been read. So a new run begins a million further: none of them is given
-- to another entry, which a consumer would take for one that it has.
local function adder()
  local LOST = 1000000
  local last, run = sent('last'), string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  if last > 0 and redis.call('HGET', SENT, 'run') ~= run then last = last + LOST end
  return function(entry)
    last = last + 1
    redis.call('XADD', STREAM, id(last), 'e', entry)
    redis.call('HSET', SENT, 'last', string.format('%.0f', last), 'run', run)
  end
end

-- Remove what all consumers have taken. If there are none, all is kept.
local function trim()
  local lowest
  for _, record in ipairs(redis.call('HVALS', TAKEN)) do
    local taken = cjson.decode(record).taken
    if not lowest or taken < lowest then lowest = taken end
  end
  if lowest and lowest > sent('trimmed') then
    redis.call('XTRIM', STREAM, 'MINID', id(lowest + 1))
    redis.call('HSET', SENT, 'trimmed', string.format('%.0f', lowest))
  end
end
