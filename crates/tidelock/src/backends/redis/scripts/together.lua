-- Enters and leaves of several locks, as far as nobody else is in line. All others are left open and asked with the
-- verbs, which have the rules.
-- KEYS    the locks' keys, each once: first of those who enter, then of those who leave
-- ARGV    1 how many enter | 2 how many kinds of claims these are | 3 1 if each has a least epoch
--         for each kind: ttl, 16 digits | milliseconds to keep the head, at least | tail of the record, as for enter
--         for each who enters: id | of several kinds, the number of its own | if each has one, the least epoch of a grant,
--         16 digits, or nothing if it is the server's time
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
local heads = pcall('MGET', unpack(keys))
if heads.err then
  for i = 1, #keys do heads[i] = pcall('GET', keys[i]) end
end
local enters, kinds, has_floors, at = tonumber(args[1]), tonumber(args[2]), args[3] == '1', 4
local before, after, keep = {}, {}, {}
for i = 1, kinds do
  before[i] = now .. args[at] .. now .. '@hold.holds'
  keep[i] = args[at + 1]
  after[i] = now .. args[at + 2]
  at = at + 3
end
for i = 1, enters do
  local id, kind, epoch, head, answer, set = args[at], 1, now, heads[i], '                ', nil
  at = at + 1
  if kinds > 1 then kind, at = tonumber(args[at]), at + 1 end
  if has_floors then
    if args[at] ~= '' then epoch = args[at] end
    at = at + 1
  end
  if not head then
    -- MGET finds nothing where another type of value is.
    set = pcall('SET', keys[i], '@form.single' .. id .. before[kind] .. epoch .. after[kind], 'PX', keep[kind], 'NX')
  elseif type(head) == 'string' and byte(head) == @form.idle.byte and #head == @idle.width then
    -- An epoch that is not past the last one is for those who know what to do about clocks.
    local last = sub(head, @idle.epoch)
    if tonumber(last) and last < epoch then
      set = pcall('SET', keys[i], '@form.single' .. id .. before[kind] .. epoch .. after[kind], 'PX', keep[kind])
    end
  end
  if set and set.ok then answer = epoch end
  answers[i + 1] = answer
end
for i = enters + 1, #keys do
  local head, answer = heads[i], ' '
  if type(head) == 'string' and byte(head) == @form.single.byte and sub(head, @single.id) == args[at] then
    local set = pcall('SET', keys[i], '@form.idle' .. sub(head, @single.epoch), 'KEEPTTL')
    if set.ok then answer = '1' end
  end
  answers[i + 1] = answer
  at = at + 1
end
return table.concat(answers)
