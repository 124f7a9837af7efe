-- The rules of a line, as src/line.rs has them.

CREATE OR REPLACE FUNCTION tidelock.now_micros() RETURNS bigint LANGUAGE sql VOLATILE AS
  'SELECT (date_part(''epoch'', clock_timestamp()) * 1000000::float8)::bigint';

-- How a commit of locks is written. Without a synchronous standby it need not be flushed: a server that lost it
-- is quiet until nobody can rely on it any more. Leases that are longer than that take a flushed commit.
-- And rows are found by index: a plan that was made while a table was small would go on reading all of it. Sessions of our own
-- have that set already.
CREATE OR REPLACE FUNCTION tidelock.commits(flushed boolean) RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT concat(CASE
    WHEN NOT flushed AND current_setting('synchronous_standby_names') = ''
      THEN set_config('synchronous_commit', 'off', true)
    WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
      THEN set_config('synchronous_commit', 'on', true)
  END, CASE WHEN current_setting('enable_seqscan') = 'on' THEN set_config('enable_seqscan', 'off', true) END)
$$;

-- The longest lease that takes commits which are not flushed, and so the longest quiet time after a crash.
CREATE OR REPLACE FUNCTION tidelock.long_lease() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 60000000::bigint';

-- Until when nothing is granted. Asked once in each session: a crash ends them all.
CREATE OR REPLACE FUNCTION tidelock.find_quiet() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  result bigint;
  s tidelock.state;
  awake_here text := tidelock.here('tidelock.awake');
  state_here text := tidelock.here('tidelock.state');
BEGIN
  SELECT quiet_until INTO result FROM tidelock.awake WHERE here = awake_here;
  IF NOT FOUND THEN
    SELECT * INTO STRICT s FROM tidelock.state FOR UPDATE;
    -- Somebody else may have found it out while this waited for the row.
    SELECT quiet_until INTO result FROM tidelock.awake WHERE here = awake_here;
    IF NOT FOUND THEN
      -- Where they were given flushed commits are still there; a standby that was promoted, or a copy, may lack any.
      result := tidelock.now_micros()
        + CASE WHEN s.here = state_here THEN least(s.longest, tidelock.long_lease()) ELSE s.longest END;
      INSERT INTO tidelock.awake AS a (quiet_until, here) VALUES (result, awake_here)
        ON CONFLICT (one) DO UPDATE SET quiet_until = excluded.quiet_until, here = excluded.here;
      IF s.here <> state_here THEN
        UPDATE tidelock.state SET here = state_here;
        PERFORM tidelock.commits(true);
      END IF;
    END IF;
  END IF;
  PERFORM set_config('tidelock.quiet_until', result::text, false);
  RETURN result;
END $$;

-- A lease of this length is about to be given: makes known, flushed with the grant, how long leases may be.
CREATE OR REPLACE FUNCTION tidelock.cover(p_ttl bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  covered bigint;
BEGIN
  SELECT longest INTO STRICT covered FROM tidelock.state;
  IF covered < p_ttl THEN
    UPDATE tidelock.state SET longest = greatest(longest, p_ttl) RETURNING longest INTO STRICT covered;
    PERFORM tidelock.commits(true);
  END IF;
  PERFORM set_config('tidelock.covered', covered::text, false);
END $$;

CREATE OR REPLACE FUNCTION tidelock.covers(held tidelock.claim, asked tidelock.claim) RETURNS boolean
  LANGUAGE sql IMMUTABLE AS $$
  SELECT held.share = 0 OR held.share = asked.share AND held.of = asked.of AND asked.n <= held.n
$$;

-- A claim that waited, and holds from now on.
CREATE OR REPLACE FUNCTION tidelock.granted(c tidelock.claim, p_epoch bigint, p_at bigint) RETURNS tidelock.claim
  LANGUAGE sql IMMUTABLE AS $$
  SELECT ROW(c.id, c.ttl, c.since, c.lapses, 1, p_epoch, p_at, c.share, c.n, c.of, c.detached, c.owner,
    c.label)::tidelock.claim
$$;

-- Whether a claim holds a line exclusively, and the next one wants the same, for nobody that has more than one claim; nobody has
-- lapsed. Each element that a statement names reads the whole line, from elsewhere if it is long. This reads it once.
CREATE OR REPLACE FUNCTION tidelock.passes_on(claims tidelock.claim[], p_id uuid, p_at bigint) RETURNS boolean
  LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  c tidelock.claim := claims[1];
  next tidelock.claim := claims[2];
BEGIN
  RETURN c.id = p_id AND c.share = 0 AND c.owner IS NULL AND c.hold = 1
    AND next.share = 0 AND next.owner IS NULL AND next.ttl <= tidelock.long_lease()
    AND NOT EXISTS (SELECT FROM unnest(claims) other WHERE other.lapses <= p_at);
END $$;

-- Tells the client of a claim: G granted | E evicted | A something moved, then its id and name, then what there is to say.
CREATE OR REPLACE FUNCTION tidelock.tell(what text, p_name text, p_id uuid, said text) RETURNS void
  LANGUAGE sql VOLATILE AS $$
  SELECT pg_notify('tidelock_' || replace(left(p_id::text, 18), '-', ''),
    what || replace(p_id::text, '-', '') || p_name || E'\n' || said)
$$;

-- Takes the lapsed claims and the one with an id, if any, out of a line; then makes holders of all that fit, unless the
-- server is quiet.
CREATE OR REPLACE FUNCTION tidelock.settle(l tidelock.line, p_at bigint, quiet boolean, gone uuid)
  RETURNS tidelock.line LANGUAGE plpgsql AS $$
DECLARE
  claims tidelock.claim[] := l.claims;
  kept tidelock.claim[] := '{}';
  c tidelock.claim;
  base tidelock.claim;
  heir int;
  bases int := 0;
  used bigint := 0;
  exclusive boolean := false;
  next int;      -- the first that waits
  along int;
BEGIN
  FOREACH c IN ARRAY coalesce(claims, '{}') LOOP
    IF c.lapses > p_at AND c.id IS DISTINCT FROM gone THEN
      kept := kept || c;
    END IF;
  END LOOP;
  -- The hold goes on for the largest of those that rode on it.
  FOREACH c IN ARRAY coalesce(claims, '{}') LOOP
    CONTINUE WHEN c.hold <> 1 OR c.owner IS NULL OR c.lapses > p_at AND c.id IS DISTINCT FROM gone;
    heir := NULL;
    FOR i IN 1 .. cardinality(kept) LOOP
      base := kept[i];
      IF base.hold = 2 AND base.owner = c.owner AND base.epoch = c.epoch
        AND (heir IS NULL OR base.share = 0 OR (kept[heir]).share <> 0 AND base.n >= (kept[heir]).n)
      THEN
        heir := i;
      END IF;
    END LOOP;
    IF heir IS NOT NULL THEN
      base := kept[heir];
      base.hold := 1;
      kept[heir] := base;
    END IF;
  END LOOP;
  claims := kept;
  next := 1;
  FOREACH c IN ARRAY claims LOOP
    EXIT WHEN c.hold = 0;
    next := next + 1;
    IF c.hold = 1 THEN
      bases := bases + 1;
      IF c.share = 0 THEN exclusive := true; ELSE used := used + c.n; END IF;
    END IF;
  END LOOP;
  WHILE NOT quiet AND next <= cardinality(claims) LOOP
    c := claims[next];
    EXIT WHEN CASE c.share WHEN 0 THEN bases > 0 WHEN 1 THEN exclusive ELSE exclusive OR used + c.n > c.of END;
    l.epoch := greatest(l.epoch + 1, p_at);
    c.hold := 1;
    c.epoch := l.epoch;
    c.held_since := p_at;
    claims[next] := c;
    next := next + 1;
    bases := bases + 1;
    IF c.share = 0 THEN exclusive := true; ELSE used := used + c.n; END IF;
    IF c.ttl > tidelock.long_lease() THEN PERFORM tidelock.commits(true); END IF;
    PERFORM tidelock.tell('G', l.name, c.id,
      format('%s %s %s', c.epoch, c.ttl, cardinality(claims) - next + 1));
    -- Claims of an owner that wait behind others ride on what it just got: they would wait for themselves.
    IF c.owner IS NOT NULL THEN
      base := c;
      FOR i IN next .. cardinality(claims) LOOP
        c := claims[i];
        CONTINUE WHEN c.owner IS DISTINCT FROM base.owner OR NOT tidelock.covers(base, c);
        c.hold := 2;
        c.epoch := base.epoch;
        c.held_since := p_at;
        claims := claims[:next - 1] || c || claims[next : i - 1] || claims[i + 1 :];
        next := next + 1;
        IF c.ttl > tidelock.long_lease() THEN PERFORM tidelock.commits(true); END IF;
        PERFORM tidelock.tell('G', l.name, c.id,
          format('%s %s %s', c.epoch, c.ttl, cardinality(claims) - next + 1));
      END LOOP;
    END IF;
  END LOOP;
  l.claims := nullif(claims, '{}');
  RETURN l;
END $$;

-- How the claim at a place of a line stands: {1, epoch, ttl, waiting} holds | {2, ahead, lapse in or -1, 0} waits.
CREATE OR REPLACE FUNCTION tidelock.stands(claims tidelock.claim[], place int, p_at bigint, quiet_left bigint)
  RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  c tidelock.claim := claims[place];
  other tidelock.claim;
  held int := 0;
  first bigint;
BEGIN
  FOREACH other IN ARRAY claims LOOP
    EXIT WHEN other.hold = 0;
    held := held + 1;
    first := least(first, other.lapses - p_at);
  END LOOP;
  IF c.hold > 0 THEN
    RETURN ARRAY[1, c.epoch, c.ttl, cardinality(claims) - held];
  END IF;
  -- Only the first that waits is told when to look again: one question, not a herd. It also ends the quiet.
  IF place > held + 1 THEN
    first := -1;
  ELSIF quiet_left > 0 THEN
    first := least(first, quiet_left);
  END IF;
  RETURN ARRAY[2, place - 1, coalesce(greatest(first, -1), -1), 0];
END $$;

-- Locks the row of a name and lets lapsed claims go. Makes the row if it is to be there.
CREATE OR REPLACE FUNCTION tidelock.open(p_name text, make boolean, OUT l tidelock.line, OUT changed boolean,
  OUT p_at bigint, OUT quiet_left bigint) LANGUAGE plpgsql AS $$
DECLARE
  quiet_until bigint := nullif(current_setting('tidelock.quiet_until', true), '')::bigint;
BEGIN
  -- Before the row is locked: whoever finds it out locks another one.
  IF quiet_until IS NULL THEN quiet_until := tidelock.find_quiet(); END IF;
  LOOP
    SELECT * INTO l FROM tidelock.line WHERE name = p_name FOR UPDATE;
    EXIT WHEN FOUND OR NOT make;
    INSERT INTO tidelock.line (name, epoch, used) VALUES (p_name, 0, tidelock.now_micros()) ON CONFLICT DO NOTHING;
    IF FOUND THEN PERFORM tidelock.sweep(0.125::float8); END IF;
  END LOOP;
  -- Only now: whoever had the row locked may have taken its time.
  p_at := tidelock.now_micros();
  quiet_left := greatest(0, quiet_until - p_at);
  IF l.late <= p_at THEN
    -- What was on its way then has arrived, or never will: the next one need not look.
    UPDATE tidelock.line SET late = NULL WHERE name = p_name;
  END IF;
  changed := l.claims IS NOT NULL AND EXISTS (SELECT FROM unnest(l.claims) c WHERE c.lapses <= p_at);
  -- Soon after a quiet time somebody may be in line who had to wait for its end; or nobody holds, because a session that is
  -- quiet let the last one go.
  IF changed OR l.claims IS NOT NULL AND quiet_left = 0
    AND (quiet_until > p_at - 3600000000 OR (l.claims[1]).hold = 0)
  THEN
    l := tidelock.settle(l, p_at, quiet_left > 0, NULL::uuid);
    changed := true;
  END IF;
END $$;

-- Tells those who follow a name, once: who wants to hear more has to ask again.
CREATE OR REPLACE FUNCTION tidelock.tell_followers(p_name text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  told text;
BEGIN
  FOR told IN DELETE FROM tidelock.follower WHERE name = p_name RETURNING client LOOP
    PERFORM pg_notify('tidelock_' || told, 'F' || p_name);
  END LOOP;
END $$;

-- Writes down what a line that was opened has become. The only way in which a line that is followed changes its holders.
CREATE OR REPLACE FUNCTION tidelock.close(l tidelock.line, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF l.followed AND EXISTS (SELECT FROM tidelock.line before WHERE before.name = l.name AND (before.epoch <> l.epoch
    OR ARRAY(SELECT c.id FROM unnest(before.claims) c WHERE c.hold > 0)
      <> ARRAY(SELECT c.id FROM unnest(l.claims) c WHERE c.hold > 0)))
  THEN
    PERFORM tidelock.tell_followers(l.name);
    l.followed := NULL;
  END IF;
  UPDATE tidelock.line SET epoch = l.epoch, used = p_at, claims = l.claims, followed = l.followed WHERE name = l.name;
END $$;

-- For how long a question may be on its way that nobody waits for any more: networks give up earlier.
CREATE OR REPLACE FUNCTION tidelock.longest_way() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 3600000000::bigint';

-- For how long a name is remembered that nobody uses. Later its epochs go on by the clock.
CREATE OR REPLACE FUNCTION tidelock.remembered() RETURNS bigint LANGUAGE sql STABLE AS $$
  -- What may still be on its way has to find the mark in its row.
  SELECT greatest(s.remembered, tidelock.longest_way()) FROM tidelock.state s
$$;

-- Forgets some names that nobody used for long, if chance will have it. Skips what others are at.
CREATE OR REPLACE FUNCTION tidelock.sweep(chance float8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  at_name text;
  last_name text;
  idle text[];
  before bigint;
  was_followed boolean;
  plans text;
BEGIN
  IF random() >= chance THEN RETURN; END IF;
  SELECT name INTO at_name FROM tidelock.broom FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    INSERT INTO tidelock.broom (name) VALUES ('') ON CONFLICT DO NOTHING;
    RETURN;
  END IF;
  -- A plan that was made while the table was small would go on reading all of it.
  plans := concat(set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('enable_sort', 'off', true));
  before := tidelock.now_micros() - tidelock.remembered();
  SELECT max(n.name), array_agg(n.name) FILTER (WHERE n.is_idle) INTO last_name, idle FROM (
    SELECT l.name, l.claims IS NULL AND greatest(l.used, l.epoch, l.late) < before AS is_idle
    FROM tidelock.line l WHERE l.name > at_name ORDER BY l.name LIMIT 64
  ) n;
  FOR i IN 1 .. coalesce(cardinality(idle), 0) LOOP
    DELETE FROM tidelock.line WHERE ctid = (
      SELECT l.ctid FROM tidelock.line l
      WHERE l.name = idle[i] AND l.claims IS NULL AND greatest(l.used, l.epoch, l.late) < before FOR UPDATE SKIP LOCKED)
    RETURNING followed INTO was_followed;
    -- Those who are still there ask again, and the row is made anew.
    IF was_followed THEN PERFORM tidelock.tell_followers(idle[i]); END IF;
  END LOOP;
  UPDATE tidelock.broom SET name = coalesce(last_name, '');
  DELETE FROM tidelock.gone WHERE id IN (
    SELECT id FROM tidelock.gone WHERE since < tidelock.now_micros() - tidelock.longest_way() ORDER BY since LIMIT 64);
END $$;
