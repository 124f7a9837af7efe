-- Raises the epoch of a claim that holds, so that no later grant here gets a smaller one.
-- KEYS    the lock's key
-- ARGV    1 id | 2 epoch, 16 digits
-- Reply   the claim's epoch now, as text | nothing if it does not hold | {9, what is there} it cannot be read
-- A line of which all was read, however long it is.
local BEGINNING = -1
local head = redis.call('GET', keys[1])
local kind_here = head and string.byte(head)
if kind_here == @form.single.byte then
  if string.sub(head, @single.id) ~= args[1] then return false end
  local epoch = string.sub(head, @single.epoch)
  if epoch >= args[2] then return epoch end
  redis.call('SET', keys[1], string.sub(head, 1, @single.epoch.before) .. args[2] .. string.sub(head, @single.epoch.after), 'KEEPTTL')
  return args[2]
end
if kind_here == @form.queue.byte then
  -- Only the first of a queue holds.
  if string.sub(head, @queue.holder.id) ~= args[1] then return false end
  local epoch = string.sub(head, @queue.holder.epoch)
  if epoch >= args[2] then return epoch end
  redis.call('SET', keys[1], string.sub(head, 1, @queue.holder.epoch.before) .. args[2] .. string.sub(head, @queue.holder.epoch.after), 'KEEPTTL')
  return args[2]
end
if not head or kind_here == @form.idle.byte then return false end
local time = redis.call('TIME')
--@queue
--@line
if not open(keys[1], head, time[1] * 1000000 + time[2], args[2]) then return {9, string.sub(head, 1, 64)} end
local at = find(holders, SEPARATOR .. args[1], 1, true)
if not at then return refused or false end
local epoch = sub(holders, @claim.epoch(at))
if epoch < args[2] then
  epoch = args[2]
  holders = sub(holders, 1, @claim.epoch.before(at)) .. epoch .. sub(holders, @claim.epoch.after(at))
  line.epoch = math.max(line.epoch, tonumber(epoch))
  expire_after(line.epoch)
  changed = true
  settle()
end
return refused or epoch
