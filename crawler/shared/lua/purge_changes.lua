#!lua flags=allow-oom
-- Replace and remove entries, in their places, and add others that say so. A stream has no command
-- for the first, so it is copied: 0.5 s at 100,000 entries.
--
-- ARGV  how many are replaced; for each: its number, JSON (empty: it is removed); JSON of the others
local COPY, SLICE = KEYS[4], 1000
local edits = {}
for i = 2, 2 * tonumber(ARGV[1]), 2 do edits[ARGV[i] .. '-0'] = ARGV[i + 1] end
redis.call('DEL', COPY)
local from = '-'
repeat
  local slice = redis.call('XRANGE', STREAM, from, '+', 'COUNT', SLICE)
  for _, each in ipairs(slice) do
    local entry = edits[each[1]] or each[2][2]
    if entry ~= '' then redis.call('XADD', COPY, each[1], 'e', entry) end
    from = '(' .. each[1]
  end
until #slice == 0
redis.call('DEL', STREAM)
if redis.call('XLEN', COPY) > 0 then redis.call('RENAME', COPY, STREAM) end
local add = adder()
for i = 2 * tonumber(ARGV[1]) + 2, #ARGV do add(ARGV[i]) end
return redis.status_reply('OK')
