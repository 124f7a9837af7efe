-- What was lent has been brought. It is remembered, so that a late repetition lends nothing.
-- KEYS    the segment
-- ARGV    1 sale | 2 transfer
-- Reply   {5, 0} | {0, 0} no such segment | {7, 0} it belongs to another sale | {8, 0} its agenda is not here
local key, transfer = keys[1], 'x' .. args[2]
local have = redis.call('HMGET', key, 'r', 'v', transfer)
if not have[1] then return {0, 0} end
if string.sub(have[2], 1, 16) ~= args[1] then return {7, 0} end
if have[3] and string.byte(have[3]) == 112 then
  --@stock
  if not is_whole(args[1]) then return {8, 0} end
  redis.call('ZREM', agenda, transfer)
  redis.call('HSET', key, transfer, 's' .. string.match(have[3], '%d+'))
  redis.call('HINCRBY', key, 'p', -1)
end
return {5, 0}
