-- Ends an order: what it took comes back, its reservation is confirmed, or it is never to be taken.
-- KEYS    the segment | in a cluster its agenda
-- ARGV    1 number of the caller's mapping | 2 o and the order | 3 g to give back, c to confirm, v to void
-- Reply   {1, standing, how many} the order's from now on | {3, mapping} the caller's is old | {0, 0} no such segment
local key, order, agenda = keys[1], args[2], keys[2] or keys[1] .. ':a'
local have = redis.call('HMGET', key, 'n', 'v', 'd', order)
if not have[1] then return {0, 0} end
if args[1] ~= have[2] then
  if tonumber(args[1]) < tonumber(have[2]) then return {3, tonumber(have[2])} end
  redis.call('HSET', key, 'v', args[1])
end
local standing = have[4]
if not standing then
  if args[3] == 'c' then return {1, 117, 0} end
  redis.call('HSET', key, order, 'v0')
  return {1, 118, 0}
end
--@stock
if string.byte(standing) == 104 and have[3] then
  local now = now_here()
  if tonumber(have[3]) <= now then
    lapse(key, agenda, now)
    standing = redis.call('HGET', key, order)
  end
end
local kind, n = string.byte(standing), tonumber(string.sub(standing, 2))
local after = kind
if args[3] == 'g' and (kind == 116 or kind == 104) then
  after = 114
  redis.call('HSET', key, order, 'r' .. n)
  redis.call('HINCRBY', key, 'n', n)
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
