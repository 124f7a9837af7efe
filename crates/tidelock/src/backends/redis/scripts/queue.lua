-- A short queue of exclusive claims without owners, all of it in the head: by far the commonest line that is
-- longer than one. The first holds, the others wait, in order.
--
--   Q | the earliest lapse 16, or less | milliseconds at which the key expires 16 | how many 4
--     | then for each a separator, its id and its record
local SEPARATOR, LONGEST = '\30', 32
local text_of = function(number) return string.format('%016d', number) end

-- Of a queue in which nobody lapsed by now: its earliest lapse, when it expires, how many are in it.
local function read_queue(head, now)
  local earliest = tonumber(string.sub(head, 2, 17))
  if earliest <= now then
    -- Somebody was renewed since that was written, or lapsed.
    local at
    earliest, at = math.huge, 38
    while at do
      earliest = math.min(earliest, string.sub(head, at + 33, at + 48) + string.sub(head, at + 49, at + 64))
      at = string.find(head, SEPARATOR, at + 1, true)
    end
    if earliest <= now then return nil end
  end
  return earliest, tonumber(string.sub(head, 18, 33)), tonumber(string.sub(head, 34, 37))
end

local function write_queue(key, earliest, expires, count, claims)
  redis.call('SET', key, 'Q' .. text_of(earliest) .. text_of(expires) .. string.format('%04d', count) .. claims,
    'PXAT', expires)
end

-- Whether the end of a record is that of an exclusive claim without an owner.
local function is_plain(record, at)
  return string.byte(record, at) == 120 and string.sub(record, at + 2, at + 4) == ',\n\n'
end
