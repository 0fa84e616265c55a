-- Claims: buckets of 10 to 40, by linear hashing (Litwin, 1980), because a list of 20 costs 20 bytes
-- a claim beside what it holds, a field of a hash 70. Claim: number of its file 3; then what the
-- worker packed, which begins with an array and the digest, as msgpack writes them.
local CLAIMS_A_BUCKET = 20
-- An attacker who makes digests with equal ends fills a bucket; only copies of his are missed then.
local MOST_CLAIMS = 200

local function power_of_two_below(buckets)
  local half = 1
  while half * 2 <= buckets do half = half * 2 end
  return half
end

local function claim_bucket(digest, buckets)
  local half = power_of_two_below(buckets)
  local bucket = struct.unpack('<I4', string.sub('\0\0\0' .. digest, -4)) % (half * 2)
  return bucket < buckets and bucket or bucket - half
end

local function claim_buckets()
  return math.floor(tonumber(redis.call('HGET', TOTALS, 'claims') or 0) / CLAIMS_A_BUCKET) + 1
end

local function digest_in(claim)
  return string.sub(claim, 7, 6 + string.byte(claim, 6))
end

local function claim_on(digest)
  local bucket = claims_key(claim_bucket(digest, claim_buckets()))
  for _, claim in ipairs(redis.call('LRANGE', bucket, 0, -1)) do
    if digest_in(claim) == digest then return claim end
  end
end
