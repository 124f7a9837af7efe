-- Takes a claim out of line.
-- KEYS    the lock's key
-- ARGV    1 id; only zeros to clear what cannot be read | 2 why, if there is more to say: nothing if its client
--         is done with it, else e and the reason of an eviction | 3 the least epoch of a grant, as for enter
--         4 in a cluster the shard, as for enter
-- Reply   1 it was there | 0 it was not | {9, what is there} it cannot be read
local key_here, id, why = keys[1], args[1], args[2] or ''
-- Most lines are shorter. Of a long one no more is read than is needed: every byte costs time. Numbers as text, because it is
-- faster. Whoever may not call it reads all.
local BEGINNING = 2048
local head = redis.pcall('GETRANGE', key_here, '0', '2047')
if #head == 0 or #head == BEGINNING and string.byte(head) ~= @form.line.byte then head = redis.call('GET', key_here) end
local kind_here = head and string.byte(head)
if not head then return 0 end
if why == '' then
  if kind_here == @form.single.byte then
    if string.sub(head, @single.id) ~= id then return 0 end
    redis.call('SET', key_here, '@form.idle' .. string.sub(head, @single.epoch), 'KEEPTTL')
    return 1
  elseif kind_here == @form.idle.byte then
    return 0
  end
end
local time = redis.call('TIME')
local now_here = time[1] * 1000000 + time[2]
--@queue
local unheard, failed
if kind_here == @form.queue.byte and why == '' then
  local at = string.find(head, SEPARATOR .. id, @queue.claims.begin, true)
  if not at then return 0 end
  local earliest, expires, count = read_queue(head, now_here)
  if earliest then
    local rest = string.find(head, SEPARATOR, at + 1, true)
    local claims = string.sub(head, @queue.claims.begin, at - 1) .. (rest and string.sub(head, rest) or '')
    count = count - 1
    local next_id, grant
    if at == @queue.claims.begin and count > 0 then
      -- The next one holds.
      local floor = args[3] or ''
      local least = floor ~= '' and tonumber(floor) or now_here
      local epoch = math.max(string.sub(head, @queue.holder.epoch) + 1, least)
      claims = string.sub(claims, 1, @claim.hold.before) .. '@hold.holds' .. text_of(epoch) .. text_of(now_here) .. string.sub(claims, @claim.share.begin)
      next_id = string.sub(claims, @claim.id)
      grant = '@news.granted' .. next_id .. text_of(epoch) .. string.sub(claims, @claim.ttl) .. (count - 1)
    end
    if count == 0 then
      local epoch = string.sub(head, @queue.holder.epoch)
      redis.call('SET', key_here, '@form.idle' .. epoch, 'PX',
        REMEMBER + math.max(0, math.ceil((epoch - now_here) / 1000)))
    elseif count == 1 then
      head = '@form.single' .. string.sub(claims, @claim.id.begin)
      redis.call('SET', key_here, head, 'PXAT', expires)
    else
      head = write_queue(key_here, earliest, expires, count, claims)
    end
    if not next_id then return 1 end
    local heard
    heard, failed = publish(key_here, args[4], next_id, grant)
    if heard then return failed or 1 end
    -- Nobody can be told of it: it is dead, and the one behind it is the next.
    unheard = next_id
  end
end
--@line
if not open(key_here, head, now_here, args[3], args[4]) then
  if why == '' or id ~= string.rep('0', @claim.id.width) then return {9, string.sub(head, 1, 64)} end
  -- Somebody wants it cleared, whatever it is. Its last epoch is remembered if it says it.
  local last = match(head, '^@form.older(%d+),') or match(head, '^' .. FORM .. string.rep('%d', @line.epoch.width))
  local epoch = math.max(now, last and tonumber(sub(last, -@line.epoch.width)) or 0)
  -- Clients of version 0.1 would find again what that version kept in other keys.
  if sub(head, @head.letter) == '@form.older' then redis.pcall('DEL', key .. ':c', key .. ':w', key .. ':x', key .. ':h') end
  call('SET', key, '@form.idle' .. text_of(epoch), 'PX', REMEMBER + math.ceil((epoch - now) / 1000))
  return 1
end
local was_there = remove(unheard or id)
if was_there then
  if why ~= '' then
    news[1] = {id, '@news.evicted' .. id .. sub(why, 2)}
    -- For those who watch all locks. In a cluster it would go to all servers.
    if not args[4] then redis.pcall('PUBLISH', match(key, '^[^{]*') .. 'in:evicted', news[1][2] .. '\n' .. key) end
  end
  advance()
  settle()
end
return refused or failed or ((was_there or unheard) and 1 or 0)
