-- Enters and leaves of several locks, as far as nobody else is in line. All others are left open and asked with the
-- verbs, which have the rules.
-- KEYS    the locks' keys, each once: first of those who enter, then of those who leave
-- ARGV    1 how many enter | 2 how many arguments each of them has
--         for each who enters: id | ttl, 16 digits | milliseconds to keep the head, at least | tail of the record, as for
--         enter | if there are five, the least epoch of a grant, 16 digits, or nothing if it is the server's time
--         for each who leaves: id
-- Reply   one text: the server's time, 16 digits | for each who enters its epoch, or as many spaces | for each who leaves
--         1 or a space
local pcall, sub, byte = redis.pcall, string.sub, string.byte
local time = redis.call('TIME')
-- Sixteen digits, whatever the clock says: they are compared as text.
local now = time[1] .. sub('000000', #time[2] + 1) .. time[2]
if #now < @claim.renewed.width then now = sub('0000000000000000', #now + 1) .. now end
local answers = {now}
-- What fails for one lock must not keep the others from an answer. From here on nothing ends the script.
local enters, width, at = tonumber(args[1]), tonumber(args[2]), 3
for i = 1, enters do
  local head, epoch, answer = pcall('GET', keys[i]), now, '                '
  if width == 5 and args[at + 4] ~= '' then epoch = args[at + 4] end
  local is_free = not head
  if type(head) == 'string' and byte(head) == @form.idle.byte and #head == @idle.width then
    -- An epoch that is not past the last one is for those who know what to do about clocks.
    local last = sub(head, @idle.epoch)
    is_free = tonumber(last) and last < epoch
  end
  if is_free then
    local set = pcall('SET', keys[i],
      '@form.single' .. args[at] .. now .. args[at + 1] .. now .. '@hold.holds' .. epoch .. now .. args[at + 3], 'PX', args[at + 2])
    if set.ok then answer = epoch end
  end
  answers[i + 1] = answer
  at = at + width
end
for i = enters + 1, #keys do
  local head, answer = pcall('GET', keys[i]), ' '
  if type(head) == 'string' and byte(head) == @form.single.byte and sub(head, @single.id) == args[at] then
    local set = pcall('SET', keys[i], '@form.idle' .. sub(head, @single.epoch), 'KEEPTTL')
    if set.ok then answer = '1' end
  end
  answers[i + 1] = answer
  at = at + 1
end
return table.concat(answers)
