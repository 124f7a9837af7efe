-- What is in line. Changes nothing.
-- KEYS[1] the lock's key
-- Reply   {time, what is kept there} | {} if nobody is in line
local head = redis.call('GET', keys[1])
if not head or (string.byte(head) == @form.idle.byte and #head == @idle.width) then return {} end
local time = redis.call('TIME')
return {time[1] * 1000000 + time[2], head}
