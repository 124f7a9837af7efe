-- What was lent has been brought. It is remembered, so that a late repetition lends nothing.
-- KEYS    the segment | in a cluster its agenda
-- ARGV    1 transfer
-- Reply   {5, 0} | {0, 0} no such segment
local key, agenda, transfer = keys[1], keys[2] or keys[1] .. ':a', 'x' .. args[1]
local have = redis.call('HMGET', key, 'n', transfer)
if not have[1] then return {0, 0} end
if have[2] and string.byte(have[2]) == 112 then
  redis.call('HSET', key, transfer, 's' .. string.match(have[2], '%d+'))
  redis.call('HINCRBY', key, 'p', -1)
  redis.call('ZREM', agenda, transfer)
end
return {5, 0}
