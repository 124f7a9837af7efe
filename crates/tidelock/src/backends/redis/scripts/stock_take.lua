-- Takes from a segment for an order, all or nothing; 0 only asks how the order stands.
-- KEYS    the segment
-- ARGV    1 sale and number of the caller's mapping | 2 o and the order | 3 how many
--         4 microseconds for a reservation, else nothing | 5 transfer that is brought along | 6 how many
-- Reply   minus how many: the order took so many, now
--         {1, standing, how many}: the order's, letter and number | {2, remaining, pending} not enough
--         {3, mapping} the caller's is old | {0, 0} no such segment | {7, 0} it belongs to another sale
--         {8, 0} its agenda is not here: nothing but what was brought along has changed
local key, order = keys[1], args[2]
local have = redis.call('HMGET', key, 'r', 'v', order)
if not have[1] then return {0, 0} end
local remaining, n, stale, newer = tonumber(have[1]), tonumber(args[3])
if args[1] ~= have[2] then
  if string.sub(args[1], 1, 16) ~= string.sub(have[2], 1, 16) then return {7, 0} end
  local mine, its = tonumber(string.sub(args[1], 18)), tonumber(string.sub(have[2], 18))
  -- Only a close closes.
  if mine < its or mine == 9007199254740991 then stale = its else newer = args[1] end
elseif string.sub(args[1], 18) == '9007199254740991' then
  -- After the end of the sale it is only asked how the order stands.
  n = 0
end
if args[5] and redis.call('HSETNX', key, 'b' .. args[5], args[6]) == 1 then
  remaining = redis.call('HINCRBY', key, 'r', args[6])
  redis.call('HINCRBY', key, 'i', args[6])
end
if stale then return {3, stale} end
if newer then redis.call('HSET', key, 'v', newer) end
local standing = have[3]
if not standing and n > 0 and remaining >= n and not args[4] then
  redis.call('HSET', key, 'r', remaining - n, order, 't' .. args[3])
  return -n
end
--@stock
local sale = string.sub(args[1], 1, 16)
if remaining < n or standing and string.byte(standing) == 104 then
  local first, now = redis.call('HGET', key, 'd'), now_here()
  if first and tonumber(first) <= now then
    if not is_whole(sale) then return {8, 0} end
    remaining = remaining + lapse(key, now)
    standing = redis.call('HGET', key, order)
  end
end
if standing then return {1, string.byte(standing), tonumber(string.sub(standing, 2))} end
if n == 0 then return {1, 117, 0} end
if remaining < n then return {2, remaining, tonumber(redis.call('HGET', key, 'p') or 0)} end
if not args[4] or args[4] == '' then
  redis.call('HSET', key, 'r', remaining - n, order, 't' .. args[3])
  return -n
end
if not is_whole(sale) then return {8, 0} end
local over = now_here() + args[4]
redis.call('ZADD', agenda, over, order)
redis.call('HSET', key, 'r', remaining - n, order, 'h' .. args[3])
redis.call('HINCRBY', key, 'h', n)
local first = redis.call('HGET', key, 'd')
if not first or tonumber(first) > over then redis.call('HSET', key, 'd', over) end
return {1, 104, n}
