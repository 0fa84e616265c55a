#!lua flags=allow-oom
-- Claim the contents of durable pages, or end the reservations of pages that were given up.
--
-- ARGV  for each: digest, owner, archive file, claim ('': given up)
-- Reply run
-- The first claim stands. If two pages claim one content, both are stored.

local function number_of(file)
  local known = redis.call('HGET', FILES, '>' .. file)
  if known then return tonumber(known) end
  local number = redis.call('HLEN', FILES) / 2
  redis.call('HSET', FILES, '>' .. file, number, '<' .. number, file)
  return number
end

-- The last bucket is new: its claims are moved there from another.
local function split_bucket(to)
  local from = claims_key(to - power_of_two_below(to))
  local stay, move = {}, {}
  for _, claim in ipairs(redis.call('LRANGE', from, 0, -1)) do
    local part = claim_bucket(digest_in(claim), to + 1) == to and move or stay
    part[#part + 1] = claim
  end
  if #move == 0 then return end
  redis.call('DEL', from)
  if #stay > 0 then redis.call('RPUSH', from, unpack(stay)) end
  redis.call('RPUSH', claims_key(to), unpack(move))
end

local function file_claim(digest, file, packed)
  local bucket = claims_key(claim_bucket(digest, claim_buckets()))
  if redis.call('LLEN', bucket) >= MOST_CLAIMS then return end
  redis.call('RPUSH', bucket, struct.pack('<I3', number_of(file)) .. packed)
  local total = redis.call('HINCRBY', TOTALS, 'claims', 1)
  if total % CLAIMS_A_BUCKET == 0 then split_bucket(total / CLAIMS_A_BUCKET) end
end

for i = 1, #ARGV, 4 do
  local digest, owner, file, packed = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local reservation = reservation_key(digest)
  local is_owner = redis.call('GET', reservation) == owner
  -- The page that has the reservation found no claim before, so the second search is saved.
  if packed ~= '' and (is_owner or not claim_on(digest)) then file_claim(digest, file, packed) end
  if is_owner then redis.call('DEL', reservation) end
end
return {run}
