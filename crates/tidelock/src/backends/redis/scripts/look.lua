-- What is in line. Changes nothing.
-- KEYS[1] the lock's key
-- Reply   {time, epoch, capacity, how many hold, id, record, …} holders first, then who waits, in order; {} if idle;
--         {time, head} if transactions keep the line
local head = redis.call('GET', keys[1])
local kind_here = head and string.sub(head, 1, 1)
if kind_here ~= 'S' and kind_here ~= 'L' and kind_here ~= 'T' then return {} end
local time = redis.call('TIME')
local now_here = time[1] * 1000000 + time[2]
if kind_here == 'T' then return {now_here, head} end
if kind_here == 'S' then
  return {now_here, tonumber(string.sub(head, 83, 98)), 0, 1, string.sub(head, 2, 33), string.sub(head, 34)}
end
local numbers = {}
for text in string.gmatch(string.sub(head, 2), '[^,]+') do numbers[#numbers + 1] = tonumber(text) end
local holding = redis.call('ZRANGE', keys[1] .. ':h', 0, -1)
local seen = {now_here, numbers[1], numbers[8], #holding}
for _, set in ipairs({holding, redis.call('ZRANGE', keys[1] .. ':w', 0, -1)}) do
  for _, id in ipairs(set) do
    seen[#seen + 1] = id
    seen[#seen + 1] = redis.call('HGET', keys[1] .. ':c', id)
  end
end
return seen
