-- Takes stock out of a segment, as much as there is up to what is asked for, to be brought to another.
-- KEYS    the segment | in a cluster its agenda
-- ARGV    1 transfer | 2 how many at most | 3 number of the segment it goes to
-- Reply   {4, how many, pending} | {0, 0} no such segment
local key, agenda, transfer = keys[1], keys[2] or keys[1] .. ':a', 'x' .. args[1]
local have = redis.call('HMGET', key, 'n', 'd', 'p', 'v', transfer)
if not have[1] then return {0, 0} end
local pending = tonumber(have[3] or 0)
if have[5] then return {4, tonumber(string.match(have[5], '%d+')), pending} end
local remaining, n = tonumber(have[1]), tonumber(args[2])
--@stock
local now = now_here()
if remaining < n and have[2] and tonumber(have[2]) <= now then
  remaining = remaining + lapse(key, agenda, now)
end
n = math.min(n, remaining)
-- After the end of a sale nothing is written that would outlive it.
if n == 0 or have[4] == '9007199254740991' then return {4, 0, pending} end
redis.call('HSET', key, 'n', remaining - n, transfer, string.format('p%d,%s,%.0f', n, args[3], now))
redis.call('HINCRBY', key, 'l', n)
redis.call('HINCRBY', key, 'p', 1)
redis.call('ZADD', agenda, 0, transfer)
return {4, n, pending + 1}
