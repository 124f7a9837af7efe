-- Brings stock in, once; 0 only asks whether the transfer was brought.
-- KEYS    the segment
-- ARGV    1 sale | 2 transfer | 3 how many
-- Reply   {6, 1 if it was brought before} | {0, 0} no such segment | {7, 0} it belongs to another sale
local key, transfer = keys[1], 'b' .. args[2]
local have = redis.call('HMGET', key, 'r', 'v', transfer)
if not have[1] then return {0, 0} end
if string.sub(have[2], 1, 16) ~= args[1] then return {7, 0} end
if have[3] then return {6, 1} end
if args[3] ~= '0' then
  redis.call('HSET', key, transfer, args[3])
  redis.call('HINCRBY', key, 'r', args[3])
  redis.call('HINCRBY', key, 'i', args[3])
end
return {6, 0}
