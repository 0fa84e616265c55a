-- The keys of a shard that have contents, beside those of its frontier.
--
--   <root>              hash    claims: how many were ever made; run of the server
--   <root>:g:<n>        list    bucket n of the claims: which page owns a content digest
--   <root>:n            hash    names of archive files, by number and back
--   <root>:v:<digest>   string  the page that has it reserved; expires
--   <root>:a:<t>:<q>    string  fingerprints of which quarter t is q (codec.py)
--   <root>:outboxes     set     workers that have links on their own disks
--   <root>:names        hash    addresses of names, with the time at which they expire
local root = KEYS[1]
local TOTALS, FILES, OUTBOXES = root, root .. ':n', root .. ':outboxes'
local NAMES = root .. ':names'
local function claims_key(bucket) return root .. ':g:' .. bucket end
local function near_key(table, quarter) return root .. ':a:' .. table .. ':' .. quarter end
local function reservation_key(digest) return root .. ':v:' .. digest end
local run = string.sub(redis.call('HGET', root, 'run') or '', 1, 8)
