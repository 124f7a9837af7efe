-- Turns away orders that want to take, and forgets the segment after a while.
-- KEYS    the segment
-- ARGV    1 sale | 2 milliseconds
-- Reply   {5, 0} | {0, 0} no such segment | {7, 0} it belongs to another sale | {8, 0} its agenda is not here
local key = keys[1]
local have = redis.call('HMGET', key, 'r', 'v')
if not have[1] then return {0, 0} end
if string.sub(have[2], 1, 16) ~= args[1] then return {7, 0} end
--@stock
if not is_whole(args[1]) then return {8, 0} end
redis.call('HSET', key, 'v', args[1] .. ' 9007199254740991')
redis.call('PEXPIRE', key, args[2])
redis.call('PEXPIRE', agenda, args[2])
return {5, 0}
