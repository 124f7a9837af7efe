-- Takes a place in line, or, for a try, only if the claim holds at once.
-- KEYS    the lock's key
-- ARGV    1 id | 2 ask: q to queue, t to try | 3 ttl, 16 digits | 4 milliseconds to keep the head, at least
--         5 tail of the record: share, detached, n, of, owner, label
--         6 the least epoch of a grant, 16 digits, if it is not the server's time | 7 in a cluster the shard:
--         what channels of clients end with
-- Reply   epoch, as text: the claim holds, nobody else is in line
--         {1, epoch, ttl, waiting} holds | {2, ahead, lapse in or -1} waits | {3} busy
--         {4, capacity} another capacity is in use | {5, share, n, of} the owner holds only this
--         {9, what is there} it cannot be read
local key_here, id = keys[1], args[1]
-- Most lines are shorter. Of a long one no more is read than is needed: every byte costs time. Numbers as text, because it is
-- faster. Whoever may not call it reads all.
local BEGINNING = 2048
local head = redis.pcall('GETRANGE', key_here, '0', '2047')
if #head == 0 or #head == BEGINNING and string.byte(head) ~= @form.line.byte then head = redis.call('GET', key_here) end
local time = redis.call('TIME')
-- Sixteen digits, whatever the clock says: they are compared as text.
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
if #now_text < @claim.renewed.width then now_text = string.sub('0000000000000000', #now_text + 1) .. now_text end
local floor = args[6] or ''
local least = floor ~= '' and floor or now_text
local kind_here = head and string.byte(head)
if kind_here ~= @form.queue.byte and kind_here ~= @form.line.byte then
  local epoch, keep
  if not head then
    epoch = least
  elseif kind_here == @form.idle.byte then
    epoch = string.sub(head, @idle.epoch.begin)
    if #epoch ~= @idle.epoch.width or not tonumber(epoch) then return {9, string.sub(head, 1, 64)} end
    if epoch < least then epoch = least else keep = true end
  elseif kind_here == @form.single.byte then
    local renewed, ttl = tonumber(string.sub(head, @single.renewed)), tonumber(string.sub(head, @single.ttl))
    if not (renewed and ttl and #head > @single.text.before) then return {9, string.sub(head, 1, 64)} end
    if renewed + ttl > now_text + 0 then
      if string.sub(head, @single.id) == id then
        redis.call('SET', key_here, string.sub(head, 1, @single.renewed.before) .. now_text .. string.sub(head, @single.renewed.after), 'PX', args[4])
        return string.sub(head, @single.epoch)
      end
      -- A mutex that is taken, the commonest case of a try: nothing to write.
      local exclusive = string.byte(head, @single.share.begin) == @share.exclusive.byte or string.byte(args[5]) == @share.exclusive.byte
      local owner = string.match(args[5], '\n([^\n]*)')
      if args[2] == 't' and exclusive and (owner == '' or owner ~= string.match(head, '\n([^\n]*)', @single.text.begin)) then
        return {3}
      end
    else
      epoch = string.sub(head, @single.epoch)
      if epoch < least then epoch = least else keep = true end
    end
  end
  if epoch then
    local px = args[4]
    if keep then
      -- The clock went back: the epoch goes on from the last one, and is remembered until the clock is past it.
      epoch = string.format('@single.epoch.format', epoch + 1)
      px = px + math.max(0, math.ceil((epoch - now_text) / 1000))
    end
    redis.call('SET', key_here,
      '@form.single' .. id .. now_text .. args[3] .. now_text .. '@hold.holds' .. epoch .. now_text .. args[5], 'PX', px)
    return epoch
  end
end
--@queue
if args[2] == 'q' and is_plain(args[5], 1) then
  local now_here = now_text + 0
  local lapses = now_here + args[3]
  local expires = math.ceil(lapses / 1000) + REMEMBER
  local claim = SEPARATOR .. id .. now_text .. args[3] .. now_text .. '@hold.waits' .. string.rep('0', @claim.epoch..held_since.width) .. args[5]
  if kind_here == @form.single.byte and is_plain(head, @single.share.begin) then
    local first = string.sub(head, @single.renewed) + string.sub(head, @single.ttl)
    expires = math.max(expires, math.ceil(first / 1000) + REMEMBER)
    write_queue(key_here, math.min(first, lapses), expires, 2, SEPARATOR .. string.sub(head, @single.id.begin) .. claim)
    return {2, 1, first - now_here}
  elseif kind_here == @form.queue.byte then
    local earliest, until_then, count = read_queue(head, now_here)
    if earliest and count < LONGEST and not string.find(head, SEPARATOR .. id, @queue.claims.begin, true) then
      write_queue(key_here, math.min(earliest, lapses), math.max(expires, until_then), count + 1,
        string.sub(head, @queue.claims.begin) .. claim)
      return {2, count, -1}
    end
  end
end
--@line
if not open(key_here, head, now_text + 0, floor, args[7], true) then return {9, string.sub(head, 1, 64)} end
local answer = renew(id)
if not answer then
  local c = read(SEPARATOR .. id .. now_text .. args[3] .. now_text .. '@hold.waits' .. string.rep('0', @claim.epoch..held_since.width) .. args[5])
  if c.share ~= '@share.exclusive' and line.capacity ~= 0 and line.capacity ~= capacity(c) then
    answer = {4, line.capacity}
  elseif may_have(holders, c.owner, 1) then
    local at = 1
    while at and c.hold == @hold.waits do
      local text, after = claim_at(holders, at)
      local held = read(text)
      if held.owner == c.owner then
        if covers(held, c) then
          set_hold(c, @hold.rides, held.epoch)
          admit(c)
          answer = holds(c)
        else
          answer = {5, string.byte(held.share), held.n or 0, held.of or 0}
        end
      end
      at = after
    end
  end
  if not answer then
    if line.waiting == 0 and fits(c) then
      set_hold(c, @hold.holds, next_epoch())
      admit(c)
      answer = holds(c)
    elseif args[2] == 't' then
      answer = {3}
    else
      admit(c)
      answer = waits(line.waiting - 1)
    end
  end
end
settle()
return refused or answer
