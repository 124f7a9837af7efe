-- Counts a segment.
-- KEYS    the segment
-- ARGV    1 sale
-- Reply   {10, remaining, sold, held, returned, then for each transfer that is not settled: id, how many, to, age}
--         {0, 0} no such segment | {7, 0} it belongs to another sale | {8, 0} its agenda is not here
local key = keys[1]
local sale = redis.call('HMGET', key, 'r', 'v')
if not sale[1] then return {0, 0} end
if string.sub(sale[2], 1, 16) ~= args[1] then return {7, 0} end
--@stock
if not is_whole(args[1]) then return {8, 0} end
local now = now_here()
lapse(key, now)
local have = redis.call('HMGET', key, 'r', 'i', 'l', 'h', 'g')
for i = 1, 5 do have[i] = tonumber(have[i] or 0) end
local reply = {10, have[1], have[2] - have[3] - have[1] - have[4], have[4], have[5]}
for _, transfer in ipairs(redis.call('ZRANGEBYSCORE', agenda, 0, 0)) do
  local n, to, since = string.match(redis.call('HGET', key, transfer), 'p(%d+),(%d+),(%d+)')
  reply[#reply + 1] = string.sub(transfer, 2)
  reply[#reply + 1] = tonumber(n)
  reply[#reply + 1] = tonumber(to)
  reply[#reply + 1] = math.max(0, now - since)
end
return reply
