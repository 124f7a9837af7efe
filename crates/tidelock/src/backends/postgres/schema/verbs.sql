-- The verbs: what clients call. They run with the rights of the schema's owner, so a client needs no others.

-- Takes a place in line, or, for a try, only if the claim holds at once.
-- Answers {1, epoch, ttl, waiting} holds | {2, ahead, lapse in or -1, 0} waits | {3} busy, or too late
--   | {4, capacity} another capacity is in use, -1 for readers | {5, share, n, of} the owner holds only this
--   | {6, left} nothing is granted for so long, after a crash
CREATE OR REPLACE FUNCTION tidelock.enter(p_name text, p_id uuid, is_try boolean, p_ttl bigint, p_share smallint,
  p_n bigint, p_of bigint, is_detached boolean, p_owner text, p_label text) RETURNS bigint[]
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p_at bigint := tidelock.now_micros();
  given bigint;
  place int;
  is_next boolean;
  l tidelock.line;
  c tidelock.claim;
  other tidelock.claim;
  o record;
  bases int := 0;
  used bigint := 0;
  exclusive boolean := false;
  held int := 0;
  too_small bigint[];
  mode text := tidelock.commits(p_ttl > tidelock.long_lease());
BEGIN
  -- Nobody relies on what says that a slot is done as on a lock: no quiet time is that long.
  IF p_ttl > coalesce(nullif(current_setting('tidelock.covered', true), '')::bigint, 0)
    AND NOT (is_detached AND strpos(coalesce(p_label, ''), E'\x1ftidelock done ') > 0)
  THEN
    PERFORM tidelock.cover(p_ttl);
  END IF;
  IF is_try THEN
    -- A mutex that is taken, the commonest case of a try: nothing is written.
    IF EXISTS (SELECT FROM tidelock.line t
      WHERE t.name = p_name AND (t.claims[1]).lapses > p_at AND ((t.claims[1]).share = 0 OR p_share = 0)
        AND NOT EXISTS (SELECT FROM unnest(t.claims) i
          WHERE i.id = p_id OR i.lapses <= p_at OR i.owner = p_owner OR p_share <> 0 AND i.share <> 0))
    THEN
      RETURN ARRAY[3]::bigint[];
    END IF;
  END IF;
  IF coalesce(nullif(current_setting('tidelock.quiet_until', true), '')::bigint, p_at + 1) <= p_at THEN
    IF p_share = 0 THEN
      -- Nearly always: nobody is in line.
      UPDATE tidelock.line SET
        epoch = greatest(epoch + 1, p_at), used = p_at,
        claims = ARRAY[ROW(p_id, p_ttl, p_at, p_at + p_ttl, 1, greatest(epoch + 1, p_at), p_at, p_share, p_n, p_of,
          is_detached, p_owner, p_label)::tidelock.claim]
      WHERE name = p_name AND claims IS NULL AND late IS NULL AND followed IS NULL RETURNING epoch INTO given;
      IF FOUND THEN RETURN ARRAY[1, given, p_ttl, 0]; END IF;
    ELSIF p_share = 1 AND p_owner IS NULL THEN
      -- Nearly always: there are only readers.
      UPDATE tidelock.line SET
        epoch = greatest(epoch + 1, p_at), used = p_at,
        claims = claims || ROW(p_id, p_ttl, p_at, p_at + p_ttl, 1, greatest(epoch + 1, p_at), p_at, p_share, p_n, p_of,
          is_detached, p_owner, p_label)::tidelock.claim
      WHERE name = p_name AND late IS NULL AND followed IS NULL AND NOT EXISTS (SELECT FROM unnest(claims) i
        WHERE i.hold <> 1 OR i.share <> 1 OR i.lapses <= p_at OR i.id = p_id)
      RETURNING epoch INTO given;
      IF FOUND THEN RETURN ARRAY[1, given, p_ttl, 0]; END IF;
    END IF;
    IF NOT is_try AND p_share <> 2 AND p_owner IS NULL THEN
      -- Else mostly: it has to wait behind others.
      UPDATE tidelock.line SET used = p_at,
        claims = claims || ROW(p_id, p_ttl, p_at, p_at + p_ttl, 0, 0, 0, p_share, p_n, p_of,
          is_detached, p_owner, p_label)::tidelock.claim
      WHERE name = p_name AND late IS NULL AND (claims[1]).hold = 1
        AND (p_share = 0 OR (claims[1]).share = 0 OR (claims[cardinality(claims)]).hold = 0)
        AND NOT EXISTS (SELECT FROM unnest(claims) i
          WHERE i.lapses <= p_at OR i.id = p_id OR p_share <> 0 AND i.share NOT IN (0, p_share))
      RETURNING cardinality(claims), (claims[cardinality(claims) - 1]).hold > 0 INTO place, is_next;
      IF FOUND THEN
        given := -1;
        IF is_next THEN
          -- Only the first that waits is told when to look again.
          SELECT min(i.lapses) - p_at INTO given FROM tidelock.line t, unnest(t.claims) i WHERE t.name = p_name AND i.hold > 0;
        END IF;
        RETURN ARRAY[2, place - 1, given, 0];
      END IF;
    END IF;
  END IF;
  SELECT * INTO o FROM tidelock.open(p_name, true);
  l := o.l;
  p_at := o.p_at;
  c := ROW(p_id, p_ttl, p_at, p_at + p_ttl, 0, 0, 0, p_share, p_n, p_of, is_detached, p_owner, p_label);
  -- Only now that the row is locked: a mark that was written while this waited for it is seen.
  IF l.late IS NOT NULL AND EXISTS (SELECT FROM tidelock.gone WHERE id = p_id) THEN too_small := ARRAY[3]; END IF;
  FOR i IN 1 .. coalesce(cardinality(l.claims), 0) LOOP
    other := l.claims[i];
    IF other.id = p_id THEN
      -- It is in line: a renewal.
      other.lapses := p_at + other.ttl;
      l.claims[i] := other;
      PERFORM tidelock.close(l, p_at);
      RETURN tidelock.stands(l.claims, i, p_at, o.quiet_left);
    END IF;
    IF other.share <> 0 AND p_share <> 0 AND (other.share <> p_share OR other.of <> p_of) THEN
      too_small := ARRAY[4, CASE other.share WHEN 1 THEN -1 ELSE other.of END];
    END IF;
    IF other.hold > 0 THEN
      held := i;
      IF other.hold = 1 THEN
        bases := bases + 1;
        IF other.share = 0 THEN exclusive := true; ELSE used := used + other.n; END IF;
      END IF;
    END IF;
  END LOOP;
  IF too_small IS NULL AND p_owner IS NOT NULL THEN
    FOR i IN 1 .. held LOOP
      other := l.claims[i];
      CONTINUE WHEN other.owner IS DISTINCT FROM p_owner;
      IF tidelock.covers(other, c) THEN
        too_small := NULL;
        c.hold := 2;
        c.epoch := other.epoch;
        c.held_since := p_at;
        EXIT;
      END IF;
      too_small := ARRAY[5, other.share, other.n, other.of];
    END LOOP;
  END IF;
  IF too_small IS NULL AND c.hold = 0 AND held = coalesce(cardinality(l.claims), 0)
    AND (CASE p_share WHEN 0 THEN bases = 0 WHEN 1 THEN NOT exclusive ELSE NOT exclusive AND used + p_n <= p_of END)
  THEN
    c.hold := 1;
    c.epoch := greatest(l.epoch + 1, p_at);
    c.held_since := p_at;
  END IF;
  IF c.hold > 0 AND o.quiet_left > 0 THEN
    -- Commits may have been lost: whoever holds now may not be in line, and who is may not hold. Nobody new does.
    c.hold := 0;
    c.epoch := 0;
    IF is_try THEN too_small := ARRAY[6, o.quiet_left]; END IF;
  ELSIF c.hold = 0 AND is_try AND too_small IS NULL THEN
    too_small := ARRAY[3];
  END IF;
  IF too_small IS NOT NULL THEN
    IF o.changed THEN
      PERFORM tidelock.close(l, p_at);
    END IF;
    RETURN too_small;
  END IF;
  IF c.hold > 0 THEN
    -- Behind the other holders: those stay the head of the line.
    l.epoch := greatest(l.epoch, c.epoch);
    held := held + 1;
    l.claims := l.claims[:held - 1] || c || l.claims[held :];
  ELSE
    l.claims := l.claims || c;
    held := cardinality(l.claims);
  END IF;
  PERFORM tidelock.close(l, p_at);
  RETURN tidelock.stands(l.claims, held, p_at, o.quiet_left);
END $$;

-- Renews claims and says how each stands: four numbers each, as enter answers, or {0, 0, 0, 0} gone.
CREATE OR REPLACE FUNCTION tidelock.renew(p_names text[], p_ids uuid[]) RETURNS bigint[]
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  answers bigint[] := array_fill(0::bigint, ARRAY[4 * cardinality(p_ids)]);
  p_at bigint := tidelock.now_micros();
  l tidelock.line;
  c tidelock.claim;
  i int;
  o record;
  changed boolean;
  standing bigint[];
  mode text := tidelock.commits(false);
BEGIN
  -- In the order of names: two batches that wait for each other would be a deadlock.
  FOR i IN SELECT n FROM generate_subscripts(p_ids, 1) n ORDER BY p_names[n] COLLATE "C", n LOOP
    -- Nearly always: nobody else is in line.
    UPDATE tidelock.line SET used = p_at, claims[1].lapses = p_at + (claims[1]).ttl
    WHERE name = p_names[i] AND cardinality(claims) = 1 AND (claims[1]).id = p_ids[i] AND (claims[1]).hold = 1
      AND (claims[1]).lapses > p_at
    RETURNING (claims[1]).epoch, (claims[1]).ttl INTO c.epoch, c.ttl;
    IF FOUND THEN
      answers[4 * i - 3] := 1;
      answers[4 * i - 2] := c.epoch;
      answers[4 * i - 1] := c.ttl;
      IF c.ttl > tidelock.long_lease() THEN mode := tidelock.commits(true); END IF;
      CONTINUE;
    END IF;
    SELECT * INTO o FROM tidelock.open(p_names[i], false);
    l := o.l;
    changed := o.changed;
    p_at := o.p_at;
    FOR place IN 1 .. coalesce(cardinality(l.claims), 0) LOOP
      c := l.claims[place];
      CONTINUE WHEN c.id <> p_ids[i];
      c.lapses := p_at + c.ttl;
      l.claims[place] := c;
      changed := true;
      IF c.hold > 0 AND c.ttl > tidelock.long_lease() THEN mode := tidelock.commits(true); END IF;
      standing := tidelock.stands(l.claims, place, p_at, o.quiet_left);
      answers[4 * i - 3] := standing[1];
      answers[4 * i - 2] := standing[2];
      answers[4 * i - 1] := standing[3];
      answers[4 * i] := standing[4];
      EXIT;
    END LOOP;
    IF changed THEN
      PERFORM tidelock.close(l, p_at);
    END IF;
  END LOOP;
  PERFORM tidelock.sweep(0.02::float8);
  RETURN answers;
END $$;

-- Takes a claim out of line, and says whether it was there. With a reason somebody else puts it out, and its client is told.
CREATE OR REPLACE FUNCTION tidelock.exit(p_name text, p_id uuid, p_reason text) RETURNS boolean
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p_at bigint := tidelock.now_micros();
  l tidelock.line;
  next tidelock.claim;
  o record;
  changed boolean;
  was_there boolean;
  -- An eviction that is lost would let its claim be renewed beside the next holder's.
  mode text := tidelock.commits(p_reason IS NOT NULL);
BEGIN
  IF p_reason IS NULL THEN
    -- Nearly always: nobody else is in line.
    UPDATE tidelock.line SET claims = NULL, used = p_at
    WHERE name = p_name AND cardinality(claims) = 1 AND (claims[1]).id = p_id AND (claims[1]).lapses > p_at
      AND followed IS NULL;
    IF FOUND THEN RETURN true; END IF;
    -- Else mostly: it holds, exclusively, and the next one wants the same, for nobody that has more than one claim.
    IF nullif(current_setting('tidelock.quiet_until', true), '')::bigint <= p_at THEN
      UPDATE tidelock.line SET epoch = greatest(epoch + 1, p_at), used = p_at,
        claims = tidelock.granted(claims[2], greatest(epoch + 1, p_at), p_at) || claims[3:]
      WHERE name = p_name AND followed IS NULL AND tidelock.passes_on(claims, p_id, p_at)
      RETURNING (claims[1]).id, epoch, (claims[1]).ttl, cardinality(claims) - 1 INTO next.id, next.epoch, next.ttl, next.n;
      IF FOUND THEN
        PERFORM tidelock.tell('G', p_name, next.id, format('%s %s %s', next.epoch, next.ttl, next.n));
        RETURN true;
      END IF;
    END IF;
    -- Or it is a reader, and others go on reading: nobody else gets anything by that.
    UPDATE tidelock.line SET used = p_at, claims = ARRAY(SELECT c FROM unnest(claims) c WHERE c.id <> p_id)
    WHERE name = p_name AND (claims[1]).hold = 1 AND (claims[1]).share = 1 AND followed IS NULL
      AND (SELECT bool_and(c.lapses > p_at) AND bool_or(c.id = p_id AND c.hold = 1 AND c.share = 1 AND c.owner IS NULL)
        AND bool_or(c.id <> p_id AND c.hold = 1) FROM unnest(claims) c);
    IF FOUND THEN RETURN true; END IF;
  END IF;
  IF NOT EXISTS (SELECT FROM tidelock.line t, unnest(t.claims) c WHERE t.name = p_name AND c.id = p_id) THEN
    RETURN false;
  END IF;
  SELECT * INTO o FROM tidelock.open(p_name, false);
  l := o.l;
  changed := o.changed;
  -- What lapsed is not there any more.
  was_there := EXISTS (SELECT FROM unnest(l.claims) c WHERE c.id = p_id);
  IF was_there THEN
    l := tidelock.settle(l, o.p_at, o.quiet_left > 0, p_id);
    changed := true;
    IF p_reason IS NOT NULL THEN PERFORM tidelock.tell('E', p_name, p_id, p_reason); END IF;
  END IF;
  IF changed THEN
    PERFORM tidelock.close(l, o.p_at);
  END IF;
  RETURN was_there;
END $$;

-- The same for clients of revision 1, which do not ask whether it was there.
CREATE OR REPLACE FUNCTION tidelock.leave(p_name text, p_id uuid, p_reason text) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM tidelock.exit(p_name, p_id, p_reason);
END $$;

-- Sees to it that a claim which is about to be left is not entered any more: a question for it was not answered, and may
-- arrive later.
CREATE OR REPLACE FUNCTION tidelock.shut_out(p_name text, p_id uuid) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p_at bigint := tidelock.now_micros();
  mode text := tidelock.commits(false);
BEGIN
  -- Whoever enters has the row when it looks for the mark, and so has this.
  INSERT INTO tidelock.line AS l (name, epoch, used, late) VALUES (p_name, 0, p_at, p_at + tidelock.longest_way())
    ON CONFLICT (name) DO UPDATE SET late = greatest(l.late, excluded.late);
  INSERT INTO tidelock.gone (id, since) VALUES (p_id, p_at) ON CONFLICT DO NOTHING;
  PERFORM tidelock.sweep(1::float8);
END $$;

-- What is in line, one row for each claim, in order; of all names if none are given.
CREATE OR REPLACE FUNCTION tidelock.look(p_names text[]) RETURNS TABLE (name text, last_epoch bigint, now bigint,
  id uuid, ttl bigint, since bigint, lapses bigint, hold smallint, epoch bigint, held_since bigint, share smallint, n bigint,
  "of" bigint, detached boolean, owner text, label text)
  LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT l.name, l.epoch, tidelock.now_micros(), c.id, c.ttl, c.since, c.lapses, c.hold, c.epoch, c.held_since, c.share,
    c.n, c.of, c.detached, c.owner, c.label
  FROM tidelock.line l, unnest(l.claims) WITH ORDINALITY AS c
  WHERE (p_names IS NULL OR l.name = ANY (p_names)) AND l.claims IS NOT NULL
  ORDER BY l.name, c.ordinality
$$;

-- The numbers of those claims that do not wait any more, for clients that cannot be told. Changes nothing.
CREATE OR REPLACE FUNCTION tidelock.peek(p_names text[], p_ids uuid[]) RETURNS int[]
  LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce(array_agg(n), '{}') FROM generate_subscripts(p_ids, 1) n
  WHERE NOT EXISTS (
    SELECT FROM tidelock.line t, unnest(t.claims) c WHERE t.name = p_names[n] AND c.id = p_ids[n] AND c.hold = 0
  )
$$;

-- What a client has to know of the server: nothing else is read of it.
CREATE OR REPLACE FUNCTION tidelock.hello() RETURNS TABLE (quiet_left bigint, standbys text)
  LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT greatest(0, tidelock.find_quiet() - tidelock.now_micros()), current_setting('synchronous_standby_names')
$$;

-- What is kept of names, for people: bytes, about how many names, or -1 if nobody has counted, and for how many microseconds.
CREATE OR REPLACE FUNCTION tidelock.kept() RETURNS TABLE (bytes bigint, names bigint, remembered bigint)
  LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT pg_total_relation_size(c.oid), c.reltuples::bigint, tidelock.remembered()
  FROM pg_class c WHERE c.oid = 'tidelock.line'::regclass
$$;

-- From now on a client hears of the next change of holders of a name. Lines that nobody follows do nothing for this: whoever
-- changes one asks only whether the row says that it is followed.
CREATE OR REPLACE FUNCTION tidelock.follow(p_name text, p_client text) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  mode text := tidelock.commits(false);
BEGIN
  -- The row is locked in any case.
  INSERT INTO tidelock.line AS l (name, epoch, used, followed) VALUES (p_name, 0, tidelock.now_micros(), true)
    ON CONFLICT (name) DO UPDATE SET followed = true WHERE l.followed IS NULL;
  INSERT INTO tidelock.follower (name, client) VALUES (p_name, p_client) ON CONFLICT DO NOTHING;
END $$;
