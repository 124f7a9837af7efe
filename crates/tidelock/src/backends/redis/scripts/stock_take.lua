-- Takes from a segment for an order, all or nothing; 0 only asks how the order stands.
-- KEYS    the segment | in a cluster its agenda
-- ARGV    1 number of the caller's mapping | 2 o and the order | 3 how many
--         4 microseconds for a reservation, else nothing | 5 transfer that is brought along | 6 how many
-- Reply   minus how many: the order took so many, now
--         {1, standing, how many}: the order's, letter and number | {2, remaining, pending} not enough
--         {3, mapping} the caller's is old | {0, 0} no such segment
local key, order = keys[1], args[2]
local have = redis.call('HMGET', key, 'n', 'v', order)
if not have[1] then return {0, 0} end
local remaining, n = tonumber(have[1]), tonumber(args[3])
if args[5] and redis.call('HSETNX', key, 'b' .. args[5], args[6]) == 1 then
  remaining = redis.call('HINCRBY', key, 'n', args[6])
  redis.call('HINCRBY', key, 'i', args[6])
end
if args[1] ~= have[2] then
  if tonumber(args[1]) < tonumber(have[2]) then return {3, tonumber(have[2])} end
  redis.call('HSET', key, 'v', args[1])
end
local standing = have[3]
if not standing and n > 0 and remaining >= n and not args[4] then
  redis.call('HSET', key, 'n', remaining - n, order, 't' .. args[3])
  return -n
end
local agenda = keys[2] or key .. ':a'
if remaining < n or standing and string.byte(standing) == 104 then
  --@stock
  local first, now = redis.call('HGET', key, 'd'), now_here()
  if first and tonumber(first) <= now then
    remaining = remaining + lapse(key, agenda, now)
    standing = redis.call('HGET', key, order)
  end
end
if standing then return {1, string.byte(standing), tonumber(string.sub(standing, 2))} end
if n == 0 then return {1, 117, 0} end
if remaining < n then return {2, remaining, tonumber(redis.call('HGET', key, 'p') or 0)} end
if not args[4] or args[4] == '' then
  redis.call('HSET', key, 'n', remaining - n, order, 't' .. args[3])
  return -n
end
local time = redis.call('TIME')
local over = time[1] * 1000000 + time[2] + args[4]
redis.call('HSET', key, 'n', remaining - n, order, 'h' .. args[3])
redis.call('HINCRBY', key, 'h', n)
redis.call('ZADD', agenda, over, order)
local first = redis.call('HGET', key, 'd')
if not first or tonumber(first) > over then redis.call('HSET', key, 'd', over) end
return {1, 104, n}
