#!lua flags=allow-oom
-- Add the fingerprints of stored pages to the buckets where near ones are searched.
--
-- ARGV  for each: table, quarter, row
-- Reply run
-- A row that is sent twice, because a reply was lost, is stored once: it is compared with the LAST rows of the bucket.
local LAST = 16
-- An attacker who makes fingerprints with the same quarter fills its bucket; then pages that are
-- near in this quarter only are not found. The bound is 2.7 times a bucket's rows at 1e8 pages.
local MOST_IN_A_BUCKET = 4096

local function has(rows, row)
  local at = string.find(rows, row, 1, true)
  while at and (at - 1) % #row > 0 do at = string.find(rows, row, at + 1, true) end
  return at
end

for i = 1, #ARGV, 3 do
  local bucket, row = near_key(ARGV[i], ARGV[i + 1]), ARGV[i + 2]
  local is_full = redis.call('STRLEN', bucket) >= MOST_IN_A_BUCKET * #row
  if not is_full and not has(redis.call('GETRANGE', bucket, -LAST * #row, -1), row) then
    redis.call('APPEND', bucket, row)
  end
end
return {run}
