-- Ends an order: what it took comes back, its reservation is confirmed, or it is never to be taken.
-- KEYS    the segment
-- ARGV    1 sale and number of the caller's mapping | 2 o and the order | 3 g to give back, c to confirm, v to void
-- Reply   {1, standing, how many} the order's from now on | {3, mapping} the caller's is old | {0, 0} no such segment
--         {7, 0} it belongs to another sale | {8, 0} its agenda is not here
local key, order = keys[1], args[2]
local have = redis.call('HMGET', key, 'r', 'v', 'd', order)
if not have[1] then return {0, 0} end
local standing, newer = have[4]
if args[1] ~= have[2] then
  if string.sub(args[1], 1, 16) ~= string.sub(have[2], 1, 16) then return {7, 0} end
  local mine, its = tonumber(string.sub(args[1], 18)), tonumber(string.sub(have[2], 18))
  -- Only a close closes.
  if mine < its or mine == 9007199254740991 then return {3, its} end
  newer = args[1]
end
if not standing then
  if newer then redis.call('HSET', key, 'v', newer) end
  if args[3] == 'c' then return {1, 117, 0} end
  redis.call('HSET', key, order, 'v0')
  return {1, 118, 0}
end
--@stock
if string.byte(standing) == 104 then
  if not is_whole(string.sub(args[1], 1, 16)) then return {8, 0} end
  local now = now_here()
  if have[3] and tonumber(have[3]) <= now then
    lapse(key, now)
    standing = redis.call('HGET', key, order)
  end
end
if newer then redis.call('HSET', key, 'v', newer) end
local kind, n = string.byte(standing), tonumber(string.sub(standing, 2))
local after = kind
if args[3] == 'g' and (kind == 116 or kind == 104) then
  after = 114
  redis.call('HSET', key, order, 'r' .. n)
  redis.call('HINCRBY', key, 'r', n)
  redis.call('HINCRBY', key, 'g', n)
elseif args[3] == 'c' and kind == 104 then
  after = 116
  redis.call('HSET', key, order, 't' .. n)
end
if kind == 104 and after ~= kind then
  redis.call('HINCRBY', key, 'h', -n)
  redis.call('ZREM', agenda, order)
end
return {1, after, n}
