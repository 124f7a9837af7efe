-- Makes a segment with its share of the stock, unless it is there.
-- KEYS    the segment
-- ARGV    1 sale | 2 number of the mapping | 3 how many
-- Reply   {5, 0} it is there | {7, 0} it belongs to another sale, or to another version of these scripts
local have = redis.call('HMGET', keys[1], 'r', 'v')
if have[1] then return {string.sub(have[2], 1, 16) == args[1] and 5 or 7, 0} end
if redis.call('EXISTS', keys[1]) == 1 then return {7, 0} end
--@stock
-- The agenda first: what is not a segment yet is filled again. One of a sale before goes with it.
redis.call('DEL', agenda)
redis.call('ZADD', agenda, -1, args[1])
redis.call('HSET', keys[1], 'r', args[3], 'i', args[3], 'v', args[1] .. ' ' .. args[2])
return {5, 0}
