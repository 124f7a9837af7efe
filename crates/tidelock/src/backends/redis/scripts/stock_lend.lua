-- Takes stock out of a segment, as much as there is up to what is asked for, to be brought to another.
-- KEYS    the segment
-- ARGV    1 sale | 2 transfer | 3 how many at most | 4 number of the segment it goes to
-- Reply   {4, how many, pending} | {0, 0} no such segment | {7, 0} it belongs to another sale | {8, 0} its agenda is not here
local key, transfer = keys[1], 'x' .. args[2]
local have = redis.call('HMGET', key, 'r', 'd', 'p', 'v', transfer)
if not have[1] then return {0, 0} end
if string.sub(have[4], 1, 16) ~= args[1] then return {7, 0} end
local pending = tonumber(have[3] or 0)
if have[5] then return {4, tonumber(string.match(have[5], '%d+')), pending} end
local remaining, n = tonumber(have[1]), tonumber(args[3])
--@stock
if not is_whole(args[1]) then return {8, 0} end
local now = now_here()
if remaining < n and have[2] and tonumber(have[2]) <= now then
  remaining = remaining + lapse(key, now)
end
n = math.min(n, remaining)
-- After the end of a sale nothing is written that would outlive it.
if n == 0 or string.sub(have[4], 18) == '9007199254740991' then return {4, 0, pending} end
redis.call('ZADD', agenda, 0, transfer)
redis.call('HSET', key, 'r', remaining - n, transfer, string.format('p%d,%s,%.0f', n, args[4], now))
redis.call('HINCRBY', key, 'l', n)
redis.call('HINCRBY', key, 'p', 1)
return {4, n, pending + 1}
