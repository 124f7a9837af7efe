-- What is in line. Changes nothing.
-- KEYS[1] the lock's key
-- Reply   {time, epoch, id, record, …} holders first, then who waits, in order; {} if idle;
--         {time, head} if transactions keep the line
local head = redis.call('GET', keys[1])
local kind_here = head and string.sub(head, 1, 1)
if not kind_here or not string.find('SLQT', kind_here, 1, true) then return {} end
local time = redis.call('TIME')
local now_here = time[1] * 1000000 + time[2]
if kind_here == 'T' then return {now_here, head} end
if kind_here == 'S' then
  return {now_here, tonumber(string.sub(head, 83, 98)), string.sub(head, 2, 33), string.sub(head, 34)}
end
if kind_here == 'Q' then
  local seen = {now_here, tonumber(string.sub(head, 120, 135))}
  for claim in string.gmatch(string.sub(head, 39), '[^\30]+') do
    seen[#seen + 1] = string.sub(claim, 1, 32)
    seen[#seen + 1] = string.sub(claim, 33)
  end
  return seen
end
local seen = {now_here, tonumber(string.match(head, '^L(%d+)'))}
for _, set in ipairs({':h', ':w'}) do
  for _, id in ipairs(redis.call('ZRANGE', keys[1] .. set, 0, -1)) do
    seen[#seen + 1] = id
    seen[#seen + 1] = redis.call('HGET', keys[1] .. ':c', id)
  end
end
return seen
