-- Renews claims, one for each lock, and says how each stands.
-- KEYS    the locks' keys
-- ARGV    1 how many locks | then an id for each lock | then the least epoch of a grant and in a cluster the
--         shard, as for enter
-- Reply   for each claim four numbers: {1, epoch, ttl, waiting} | {2, ahead, lapse in or -1, 0} | {0, 0, 0, 0} gone
--         | {9, 0, 0, 0} what is there cannot be read; then the server's time
local time = redis.call('TIME')
-- Sixteen digits, whatever the clock says: they stand at fixed places.
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
if #now_text < @claim.renewed.width then now_text = string.sub('0000000000000000', #now_text + 1) .. now_text end
-- Heads of lines with more than one claim, kept because a long one costs time for each of its bytes. One is used once:
-- another claim of the same lock needs what the first one wrote.
local answers, rest, heads = {}, nil, nil
-- Most lines are shorter. Of a long one no more is read than is needed: every byte costs time. Numbers as text, because it is
-- faster. Whoever may not call it reads all.
local BEGINNING = 2048
local count = tonumber(args[1])
for i = 1, count do
  local at = keys[i]
  -- What somebody else put in the place of one lock must not keep the others from being renewed.
  local head = redis.pcall('GETRANGE', at, '0', '2047')
  if #head == 0 or #head == BEGINNING and string.byte(head) ~= @form.line.byte then head = redis.pcall('GET', at) end
  local kind_here = head and (type(head) == 'table' and 0 or string.byte(head))
  local a, b, c, d = 0, 0, 0, 0
  if kind_here == @form.single.byte then
    if string.sub(head, @single.id) == args[i + 1] then
      local renewed, ttl = tonumber(string.sub(head, @single.renewed)), tonumber(string.sub(head, @single.ttl))
      if not (renewed and ttl) then
        a = 9
      elseif renewed + ttl > now_text + 0 then
        redis.call('SET', at, string.sub(head, 1, @single.renewed.before) .. now_text .. string.sub(head, @single.renewed.after), 'PX',
          math.ceil(ttl / 1000) + REMEMBER)
        a, b, c = 1, tonumber(string.sub(head, @single.epoch)), ttl
      end
    end
  elseif kind_here == @form.queue.byte or kind_here == @form.line.byte then
    rest, heads = rest or {}, heads or {}
    rest[#rest + 1], heads[at] = i, head
  elseif head and kind_here ~= @form.idle.byte then
    a = 9
  end
  answers[4 * i - 3], answers[4 * i - 2], answers[4 * i - 1], answers[4 * i] = a, b, c, d
end
answers[4 * count + 1] = tonumber(now_text)
if not rest then return answers end
--@queue
-- Milliseconds for which a renewal keeps the key of a queue longer than it has to, so that the next ones need not.
local SPARE = 60000

-- Renews the claim that begins at a place. A queue is a kilobyte or more: nearly always only the time is overwritten.
local function renew_in_queue(key, head, at, now_text, ttl, earliest, expires, has_passed)
  local needed = math.ceil((now_text + ttl) / 1000) + REMEMBER
  if needed > expires then
    redis.call('SET', key, '@form.queue' .. text_of(earliest) .. text_of(needed + SPARE) .. string.sub(head, @queue.count.begin, @claim.renewed.before(at))
      .. now_text .. string.sub(head, @claim.renewed.after(at)), 'PXAT', needed + SPARE)
    return
  end
  redis.call('SETRANGE', key, @claim.renewed.before(at), now_text)
  -- Else every renewal from now on would look for it.
  if has_passed then redis.call('SETRANGE', key, @queue.earliest.before, text_of(earliest)) end
end

local longer
for _, i in ipairs(rest) do
  local key_here = keys[i]
  local head = heads[key_here] or redis.call('GET', key_here)
  heads[key_here] = nil
  local earliest, expires, claims, has_passed
  if string.byte(head) == @form.queue.byte then earliest, expires, claims, has_passed = read_queue(head, now_text + 0) end
  if earliest then
    local at = string.find(head, SEPARATOR .. args[i + 1], @queue.claims.begin, true)
    if at then
      local ttl = tonumber(string.sub(head, @claim.ttl(at)))
      renew_in_queue(key_here, head, at, now_text, ttl, earliest, expires, has_passed)
      local a, b, c, d
      if at == @queue.claims.begin then
        a, b, c, d = 1, tonumber(string.sub(head, @queue.holder.epoch)), ttl, claims - 1
      else
        -- Not by `gsub`, which copies byte by byte.
        local ahead, other = 1, string.find(head, SEPARATOR, @queue.claims.begin + 1, true)
        while other < at do
          ahead, other = ahead + 1, string.find(head, SEPARATOR, other + 1, true)
        end
        a, b, c, d = 2, ahead, -1, 0
        if ahead == 1 then c = string.sub(head, @queue.holder.renewed) + string.sub(head, @queue.holder.ttl) - now_text end
      end
      answers[4 * i - 3], answers[4 * i - 2], answers[4 * i - 1], answers[4 * i] = a, b, c, d
    end
  else
    longer, heads[key_here] = longer or {}, head
    longer[#longer + 1] = i
  end
end
if not longer then return answers end
--@line
for _, i in ipairs(longer) do
  local answer = {9}
  local key_here = keys[i]
  local head = heads[key_here] or redis.call('GET', key_here)
  heads[key_here] = nil
  if open(key_here, head, now_text + 0, args[count + 2], args[count + 3]) then
    answer = renew(args[i + 1]) or {0}
    settle()
  end
  for j = 1, 4 do answers[4 * i - 4 + j] = answer[j] or 0 end
end
return refused or answers
