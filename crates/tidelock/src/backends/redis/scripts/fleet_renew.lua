--@renew
-- As renew, for locks that other programs take, too.
-- KEYS    the locks' keys | what others take, for each lock | the counters if there are any, for each lock
-- ARGV    1 how many locks | then for each kind, what its client knows, milliseconds of its lease | then as renew
-- Reply   as renew, with two more numbers for each: when the entry of one that holds was made, and its number or 0; of
--         one that waits and is first in line -1 if others are in the way, -2 if they are let in, and 0
--@rules
local count = tonumber(args[1])
local plain = ordinary({unpack(keys, 1, count)}, {unpack(args, 3 * count + 2)})
if plain.err then return plain end
local now, answers = micros(), {}
for i = 1, count do
  local at, six = keys[count + i], {plain[4 * i - 3], plain[4 * i - 2], plain[4 * i - 1], plain[4 * i], 0, 0}
  if six[1] == 1 then
    local kind, expected, ttl = args[3 * i - 1], args[3 * i], tonumber(args[3 * i + 1])
    -- Of something else that is kept there it is known only that others are in the way.
    local found, strange = read_foreign(kind, at)
    if strange then found = {'', ''} end
    local id = args[3 * count + 2 + i]
    local made, more, why = gate(kind, at, keys[2 * count + i], found, id, expected, ttl, now)
    if made then
      six[5], six[6] = made, more or 0
    elseif more then
      six = {2, 1, more, 0, why, 0}
    else
      six = {0, 0, 0, 0, 0, 0}
    end
  end
  for j = 1, 6 do answers[6 * i - 6 + j] = six[j] end
end
answers[6 * count + 1] = plain[4 * count + 1]
return answers
