-- A short queue of exclusive claims without owners: by far the commonest line that is longer than one. The
-- first holds, the others wait, in order.
--
--   Q | the earliest lapse 16, or less | milliseconds at which the key expires 16 | how many 4
--     | then for each a separator, its id and its record
local SEPARATOR, LONGEST = '\@mark.separator.byte', 32
local text_of = function(number) return string.format('@claim.renewed.format', number) end

-- Of a queue in which nobody lapsed by now: its earliest lapse, when it expires, how many are in it, and whether what is
-- written of its earliest lapse has passed. Nothing if somebody lapsed, or if it cannot be read.
local function read_queue(head, now)
  local earliest, expires, count =
    tonumber(string.sub(head, @queue.earliest)), tonumber(string.sub(head, @queue.expires)), tonumber(string.sub(head, @queue.count))
  if not (earliest and expires and count) then return nil end
  local has_passed = earliest <= now
  if has_passed then
    -- Somebody was renewed since that was written, or lapsed.
    local at
    earliest, at = math.huge, @queue.claims.begin
    while at do
      local renewed, ttl = tonumber(string.sub(head, @claim.renewed(at))), tonumber(string.sub(head, @claim.ttl(at)))
      if not (renewed and ttl) then return nil end
      earliest = math.min(earliest, renewed + ttl)
      at = string.find(head, SEPARATOR, at + 1, true)
    end
    if earliest <= now then return nil end
  end
  return earliest, expires, count, has_passed
end

local function write_queue(key, earliest, expires, count, claims)
  local head = '@form.queue' .. text_of(earliest) .. text_of(expires) .. string.format('@queue.count.format', count) .. claims
  redis.call('SET', key, head, 'PXAT', expires)
  return head
end

-- Whether the end of a record is that of an exclusive claim without an owner.
local function is_plain(record, at)
  return string.byte(record, at) == @share.exclusive.byte and string.sub(record, @plain.no_owner(at)) == ',\n\n'
end

-- Tells a claim's client, after what it is told was written. Says whether anybody heard it, and the server's
-- error if it refused: then the client finds out by asking.
local function publish(key, shard, id, text)
  -- While a slot moves nobody can hear here: clients find out by asking.
  if shard == '?' then return true end
  local to = string.match(key, '^[^{]*') .. 'in:' .. string.sub(id, @id.client) .. (shard or '')
  local heard = redis.pcall(shard and 'SPUBLISH' or 'PUBLISH', to, text .. '\n' .. key)
  if type(heard) == 'table' then return true, heard end
  return heard > 0
end
