-- Brings stock in, once; 0 only asks whether the transfer was brought.
-- KEYS    the segment | in a cluster its agenda
-- ARGV    1 transfer | 2 how many
-- Reply   {6, 1 if it was brought before} | {0, 0} no such segment
local key, transfer = keys[1], 'b' .. args[1]
local have = redis.call('HMGET', key, 'n', transfer)
if not have[1] then return {0, 0} end
if have[2] then return {6, 1} end
if args[2] ~= '0' then
  redis.call('HSET', key, transfer, args[2])
  redis.call('HINCRBY', key, 'n', args[2])
  redis.call('HINCRBY', key, 'i', args[2])
end
return {6, 0}
