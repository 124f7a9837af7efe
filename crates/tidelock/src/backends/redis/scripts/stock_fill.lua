-- Makes a segment with its share of the stock, unless it is there.
-- KEYS    the segment | in a cluster its agenda
-- ARGV    1 sale | 2 number of the mapping | 3 how many
-- Reply   {5, 0} it is there | {7, 0} it belongs to another sale
local have = redis.call('HMGET', keys[1], 'n', 's')
if have[1] then return {have[2] == args[1] and 5 or 7, 0} end
redis.call('HSET', keys[1], 'n', args[3], 'i', args[3], 's', args[1], 'v', args[2])
return {5, 0}
