-- Writes the plan of an item in place of the one before.
-- KEYS    the plan: a text that means nothing here
-- ARGV    1 the text before, empty for none | 2 its text | 3 milliseconds after which it is forgotten, else nothing
-- Reply   {5, 1 if it was written}
if (redis.call('GET', keys[1]) or '') ~= args[1] then return {5, 0} end
if args[3] then
  redis.call('SET', keys[1], args[2], 'PX', args[3])
else
  redis.call('SET', keys[1], args[2])
end
return {5, 1}
