-- The locks of tidelock (https://docs.rs/tidelock). May be run again: what is there stays.
-- One transaction, in which names mean what the server itself calls by them; others that install wait here.
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT pg_advisory_xact_lock(7594868131420104811);

-- The owner of anything here runs code with the rights of those who call it. So the schema is either new, or all of it
-- belongs to roles that may do what this one may. Nothing in it is called or changed before that is known.
DO $$
DECLARE
  stranger record;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'tidelock') THEN
    CREATE SCHEMA tidelock;
  END IF;
  SELECT * INTO stranger FROM (
    SELECT pg_get_userbyid(o.owner)::text AS owner, min(o.what) AS what FROM (
  SELECT n.nspowner AS owner, 'the schema tidelock' AS what FROM pg_namespace n WHERE n.nspname = 'tidelock'
  UNION ALL SELECT c.relowner, format('the table tidelock.%I', c.relname)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'tidelock'
  UNION ALL SELECT p.proowner, format('the function tidelock.%I', p.proname)
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'tidelock'
  UNION ALL SELECT t.typowner, format('the type tidelock.%I', t.typname)
    FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE n.nspname = 'tidelock'
  UNION ALL SELECT r.oprowner, format('the operator tidelock.%s', r.oprname)
    FROM pg_operator r JOIN pg_namespace n ON n.oid = r.oprnamespace WHERE n.nspname = 'tidelock'
  UNION ALL SELECT p.proowner, format('the trigger %I of tidelock.%I', t.tgname, c.relname)
    FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_class c ON c.oid = t.tgrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'tidelock'
) o
WHERE NOT pg_has_role(o.owner, current_user, 'MEMBER')
  AND NOT (o.owner = (SELECT datdba FROM pg_database WHERE datname = current_database())
    AND NOT (SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user))
GROUP BY o.owner

  ) s;
  IF FOUND THEN
    RAISE EXCEPTION '% belongs to the role "%", which could run code with the rights of "%" by it',
      stranger.what, stranger.owner, current_user USING ERRCODE = 'insufficient_privilege',
      HINT = 'If that role is meant to own it, run this as that role; else look at what is in the schema tidelock, and drop it.';
  END IF;
END $$;
REVOKE ALL ON SCHEMA tidelock FROM PUBLIC;

-- Which clients may call what is here: one that knows a smaller number says so instead. Both are read from the catalogue.
CREATE OR REPLACE FUNCTION tidelock.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
-- What is here: a client that needs a larger number installs it, or says that it has to be installed.
CREATE OR REPLACE FUNCTION tidelock.revision() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 4';

-- A claim in line. Times are microseconds since 1970, by the server's clock.
DO $$ BEGIN
  CREATE TYPE tidelock.claim AS (
    id uuid,          -- its client is the first half
    ttl bigint,
    since bigint,     -- when it came
    lapses bigint,
    hold smallint,    -- 0 waits, 1 holds, 2 rides on the hold of another claim of its owner
    epoch bigint,
    held_since bigint,
    share smallint,   -- 0 exclusive, 1 shared, 2 permits
    n bigint,         -- so many permits
    of bigint,        -- of so many
    detached boolean,
    owner text,       -- null: nobody
    label text
  );
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- One row for each name holds its whole line: holders first, then those who wait, in order.
-- A change is one update of one row within its page: no index but that of the name, and room beside it.
CREATE TABLE IF NOT EXISTS tidelock.line (
  name text COLLATE "C" PRIMARY KEY,
  epoch bigint NOT NULL,   -- of the latest grant
  used bigint NOT NULL,    -- when it was last changed
  late bigint,             -- until then a claim may come that is in tidelock.gone; null: none
  claims tidelock.claim[], -- null: nobody is in line
  followed boolean         -- those in tidelock.follower want to hear of the next change of holders; null: nobody does
) WITH (fillfactor = 50, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_threshold = 1000000, vacuum_truncate = off);
-- A line is read and written whole: to compress it or to keep it elsewhere costs more than it saves. Only once, as all changes
-- of tables: they wait for those who use them, who may wait for each other.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'tidelock.line'::regclass AND attname = 'claims' AND attstorage <> 'e') THEN
    ALTER TABLE tidelock.line ALTER claims SET STORAGE EXTERNAL;
  END IF;
END $$;

-- Earlier revisions had nobody that follows a name.
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'tidelock.line'::regclass AND attname = 'followed') THEN
    ALTER TABLE tidelock.line ADD COLUMN followed boolean;
  END IF;
END $$;

-- Clients that want to hear of the next change of holders. Written only by those who have the row of the name locked. A crash
-- empties it, and clients that lost their connection ask once more.
CREATE UNLOGGED TABLE IF NOT EXISTS tidelock.follower (
  name text COLLATE "C",
  client text COLLATE "C",   -- 16 hexadecimal digits
  PRIMARY KEY (name, client)
);

-- Claims that were left while a question for them was not answered. If it arrives after all it takes nothing.
CREATE TABLE IF NOT EXISTS tidelock.gone (
  id uuid PRIMARY KEY,
  since bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS gone_since ON tidelock.gone (since);

-- What tells a table of this server from its copy elsewhere: a dump that was restored, a database that was copied, a standby
-- that was promoted. The file of a table is another one when it was emptied or made anew in the same database.
CREATE OR REPLACE FUNCTION tidelock.here(kept regclass) RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
    (SELECT oid FROM pg_database WHERE datname = current_database()), pg_relation_filenode(kept),
    left(pg_walfile_name(pg_current_wal_lsn()), 8))
$$;

-- What has to be known after a restart: how long leases may be, and where they were given.
CREATE TABLE IF NOT EXISTS tidelock.state (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  longest bigint NOT NULL DEFAULT 0,
  here text NOT NULL
);
-- The server empties an unlogged table when it recovers from a crash, and on a standby that is promoted; in both
-- cases commits may have been lost that clients rely on. A dump carries its row along to where it was not written.
-- Without this row, or with that of another place, nothing is granted for a while.
CREATE UNLOGGED TABLE IF NOT EXISTS tidelock.awake (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  quiet_until bigint NOT NULL,
  here text
);
-- Revision 1 did not say where a row of the first was written, and of the second only the timeline: it may be a copy.
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'tidelock.awake'::regclass AND attname = 'here') THEN
    ALTER TABLE tidelock.awake ADD COLUMN here text;
    ALTER TABLE tidelock.state RENAME timeline TO here;
  END IF;
END $$;
-- For how long a name is remembered that nobody uses, in microseconds: to be changed by hand. An hour at least.
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'tidelock.state'::regclass AND attname = 'remembered') THEN
    ALTER TABLE tidelock.state ADD COLUMN remembered bigint NOT NULL DEFAULT 86400000000;
  END IF;
END $$;
INSERT INTO tidelock.state (here) VALUES (tidelock.here('tidelock.state')) ON CONFLICT DO NOTHING;
-- Only when the tables are new: a server that has just recovered, or is a copy, has to find that out.
INSERT INTO tidelock.awake (quiet_until, here) SELECT 0, tidelock.here('tidelock.awake') FROM tidelock.state
  WHERE longest = 0 ON CONFLICT DO NOTHING;

-- Where the sweep of names that nobody uses goes on.
CREATE UNLOGGED TABLE IF NOT EXISTS tidelock.broom (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  name text COLLATE "C" NOT NULL
);

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
      WHERE name = p_name AND (claims[1]).id = p_id AND (claims[1]).share = 0 AND (claims[1]).owner IS NULL
        AND (claims[1]).hold = 1 AND (claims[2]).share = 0 AND (claims[2]).owner IS NULL
        AND (claims[2]).ttl <= tidelock.long_lease() AND followed IS NULL
        AND NOT EXISTS (SELECT FROM unnest(claims) c WHERE c.lapses <= p_at)
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

-- Enters and leaves of one client that go together, in one statement: those that need no rule. A free line takes a claim, and a
-- claim that is alone in its line leaves it. All others are asked one by one, with the verbs.

-- An enter has a ttl, a leave has none. Names are different, and sorted. Answers the numbers of those that were done, then as
-- many epochs; those of leaves do not matter.
-- Never waits for a row: one that somebody else has locked is not done. New rows are made in the order of names. So no two
-- calls wait for each other.
CREATE OR REPLACE FUNCTION tidelock.together(p_names text[], p_ids uuid[], p_ttls bigint[], p_shares smallint[], p_ns bigint[],
  p_ofs bigint[], are_detached boolean[], p_owners text[], p_labels text[]) RETURNS bigint[]
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p_at bigint := tidelock.now_micros();
  -- Longer leases have to be made known first, or take flushed commits.
  longest bigint := least(tidelock.long_lease(),
    coalesce(nullif(current_setting('tidelock.covered', true), '')::bigint, -1));
  done bigint[];
  epochs bigint[];
  made bigint[];
  mode text := tidelock.commits(false);
  -- Rows are found by their names, whatever was known of the table when the plan was made.
  plans text := concat(set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true), set_config('enable_material', 'off', true));
BEGIN
  -- Nothing is granted while the server is quiet, or may be.
  IF coalesce(nullif(current_setting('tidelock.quiet_until', true), '')::bigint, p_at + 1) > p_at THEN longest := -1; END IF;
  WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(p_names, p_ids, p_ttls, p_shares, p_ns, p_ofs, are_detached, p_owners, p_labels)
      WITH ORDINALITY AS a (name, id, ttl, share, n, of, detached, owner, label, number)
  ), locked AS MATERIALIZED (
    SELECT a.*, l.at FROM asked a CROSS JOIN LATERAL (
      SELECT t.ctid AS at FROM tidelock.line t
      WHERE t.name = a.name AND t.followed IS NULL AND CASE WHEN a.ttl IS NULL
        THEN cardinality(t.claims) = 1 AND (t.claims[1]).id = a.id AND (t.claims[1]).lapses > p_at
        ELSE a.ttl <= longest AND t.claims IS NULL AND t.late IS NULL END
      FOR UPDATE SKIP LOCKED
    ) l
  ), changed AS (
    UPDATE tidelock.line l SET used = p_at,
      epoch = CASE WHEN a.ttl IS NULL THEN l.epoch ELSE greatest(l.epoch + 1, p_at) END,
      claims = CASE WHEN a.ttl IS NULL THEN NULL ELSE ARRAY[ROW(a.id, a.ttl, p_at, p_at + a.ttl, 1, greatest(l.epoch + 1, p_at),
        p_at, a.share, a.n, a.of, a.detached, a.owner, a.label)::tidelock.claim] END
    FROM locked a WHERE l.ctid = a.at
    RETURNING a.number, l.epoch
  )
  SELECT array_agg(c.number), array_agg(c.epoch) INTO done, epochs FROM changed c;
  IF longest > 0 AND coalesce(cardinality(done), 0) < cardinality(p_names) THEN
    -- Lines that are not there yet.
    WITH asked AS MATERIALIZED (
      SELECT * FROM unnest(p_names, p_ids, p_ttls, p_shares, p_ns, p_ofs, are_detached, p_owners, p_labels)
        WITH ORDINALITY AS a (name, id, ttl, share, n, of, detached, owner, label, number)
      WHERE a.ttl <= longest AND a.number <> ALL (coalesce(done, '{}'))
    ), inserted AS (
      INSERT INTO tidelock.line (name, epoch, used, claims)
      SELECT a.name, p_at, p_at, ARRAY[ROW(a.id, a.ttl, p_at, p_at + a.ttl, 1, p_at, p_at, a.share, a.n, a.of, a.detached,
        a.owner, a.label)::tidelock.claim]
      FROM asked a WHERE NOT EXISTS (SELECT FROM tidelock.line l WHERE l.name = a.name)
      ON CONFLICT DO NOTHING RETURNING name
    )
    SELECT array_agg(a.number) INTO made FROM inserted i JOIN asked a ON a.name = i.name;
    IF made IS NOT NULL THEN
      done := done || made;
      epochs := epochs || array_fill(p_at, ARRAY[cardinality(made)]);
      -- As often as if each had come alone.
      FOR i IN 1 .. cardinality(made) / 8 LOOP PERFORM tidelock.sweep(1::float8); END LOOP;
      PERFORM tidelock.sweep((cardinality(made) % 8) / 8::float8);
    END IF;
  END IF;
  RETURN done || epochs;
END $$;

-- The verbs of `?mode=advisory`: a claim holds only while its session also has the advisory lock of its name, which keeps out
-- programs that know nothing of us.

-- The key of a name. Others call it: SELECT pg_advisory_lock(tidelock.key('nightly-report')).
CREATE OR REPLACE FUNCTION tidelock.key(p_name text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  -- Named in full, because programs call this with a search path of their own.
  SELECT pg_catalog.textcat('x', pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(
    pg_catalog.textcat(E'tidelock advisory lock\n', p_name), 'UTF8')), 'hex'), 16))::pg_catalog.bit(64)::pg_catalog.int8
$$;

-- Whether this session has a lock.
CREATE OR REPLACE FUNCTION tidelock.has(p_key bigint, shared boolean) RETURNS boolean LANGUAGE sql AS $$
  SELECT EXISTS (
    SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted AND objsubid = 1
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND classid = ((p_key >> 32) & 4294967295)::oid AND objid = (p_key & 4294967295)::oid
      AND mode = CASE WHEN shared THEN 'ShareLock' ELSE 'ExclusiveLock' END
  )
$$;

-- Takes the lock for a claim that holds, once for the session, however many of its claims share it. Says whether strangers are
-- kept out: a session of ours that is late in giving the lock back does that as well, and tells the holder when it has.
CREATE OR REPLACE FUNCTION tidelock.take(p_name text, shared boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  k bigint := tidelock.key(p_name);
  ours boolean;
BEGIN
  IF tidelock.has(k, shared) THEN RETURN true; END IF;
  FOR tries IN 1 .. 8 LOOP
    IF shared THEN
      IF pg_try_advisory_lock_shared(k) THEN RETURN true; END IF;
    ELSIF pg_try_advisory_lock(k) THEN
      RETURN true;
    END IF;
    SELECT bool_and(a.application_name IS NOT DISTINCT FROM 'tidelock') INTO ours
    FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.classid = ((k >> 32) & 4294967295)::oid AND l.objid = (k & 4294967295)::oid
      AND (NOT shared OR l.mode = 'ExclusiveLock');
    -- Null: it was given back between the two questions. It is nobody's then, and so not ours: the next may be a stranger.
    IF ours IS NOT NULL THEN RETURN ours; END IF;
  END LOOP;
  RETURN false;
END $$;

-- Gives back what no claim of a client needs any more.
CREATE OR REPLACE FUNCTION tidelock.let_go(p_name text, p_id uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  k bigint := tidelock.key(p_name);
  writes boolean;
  other uuid;
BEGIN
  SELECT bool_or(c.share = 0) INTO writes FROM tidelock.line t, unnest(t.claims) c
  WHERE t.name = p_name AND c.hold > 0 AND left(c.id::text, 18) = left(p_id::text, 18);
  IF writes THEN RETURN; END IF;
  IF tidelock.has(k, false) THEN
    -- Readers of the same client stay: they are not without a lock for a moment.
    IF writes IS NOT NULL AND NOT tidelock.has(k, true) THEN PERFORM pg_try_advisory_lock_shared(k); END IF;
    PERFORM pg_advisory_unlock(k);
  END IF;
  IF writes IS NULL AND tidelock.has(k, true) THEN PERFORM pg_advisory_unlock_shared(k); END IF;
  -- Whoever has held since before may not have had it.
  FOR other IN SELECT c.id FROM tidelock.line t, unnest(t.claims) c
    WHERE t.name = p_name AND c.hold > 0 AND left(c.id::text, 18) <> left(p_id::text, 18)
      AND c.held_since < date_part('epoch', transaction_timestamp()) * 1000000::float8
  LOOP
    PERFORM tidelock.tell('A', p_name, other, '');
  END LOOP;
END $$;

-- As enter. Where somebody else has the advisory lock a claim that is first in line waits, and asks again soon.
CREATE OR REPLACE FUNCTION tidelock.advisory_enter(p_name text, p_id uuid, is_try boolean, p_ttl bigint, p_share smallint,
  p_n bigint, p_of bigint, is_detached boolean, p_owner text, p_label text) RETURNS bigint[]
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  answer bigint[] := tidelock.enter(p_name, p_id, is_try, p_ttl, p_share, p_n, p_of, is_detached, p_owner, p_label);
BEGIN
  IF answer[1] <> 1 OR tidelock.take(p_name, p_share = 1) THEN RETURN answer; END IF;
  IF is_try THEN
    PERFORM tidelock.exit(p_name, p_id, NULL::text);
    RETURN ARRAY[3];
  END IF;
  RETURN ARRAY[2, 1, 20000, 0];
END $$;

-- As renew.
CREATE OR REPLACE FUNCTION tidelock.advisory_renew(p_names text[], p_ids uuid[]) RETURNS bigint[]
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  answers bigint[] := tidelock.renew(p_names, p_ids);
  reads boolean;
BEGIN
  FOR i IN 1 .. cardinality(p_ids) LOOP
    CONTINUE WHEN answers[4 * i - 3] <> 1;
    SELECT c.share = 1 INTO reads FROM tidelock.line t, unnest(t.claims) c
    WHERE t.name = p_names[i] AND c.id = p_ids[i];
    CONTINUE WHEN tidelock.take(p_names[i], reads);
    answers[4 * i - 3] := 2;
    answers[4 * i - 2] := 1;
    answers[4 * i - 1] := 20000;
    answers[4 * i] := 0;
  END LOOP;
  RETURN answers;
END $$;

-- As exit. Only the client of a claim has anything to give back.
CREATE OR REPLACE FUNCTION tidelock.advisory_exit(p_name text, p_id uuid, p_reason text) RETURNS boolean
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  was_there boolean := tidelock.exit(p_name, p_id, p_reason);
BEGIN
  IF replace(left(p_id::text, 18), '-', '') = current_setting('tidelock.client', true) THEN
    PERFORM tidelock.let_go(p_name, p_id);
  END IF;
  RETURN was_there;
END $$;

-- The same for clients of revision 1, which do not ask whether it was there.
CREATE OR REPLACE FUNCTION tidelock.advisory_leave(p_name text, p_id uuid, p_reason text) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM tidelock.advisory_exit(p_name, p_id, p_reason);
END $$;

-- Stock: plans of items, and segments with their orders and with what was lent and brought. The rules are those of
-- src/stock/ledger.rs. Whatever is answered is flushed: a sale is not a lease that ends on its own.

CREATE TABLE IF NOT EXISTS tidelock.stock_plan (
  item text COLLATE "C" PRIMARY KEY,
  version bigint NOT NULL,
  plan text NOT NULL,
  over bigint             -- when it is forgotten
);

CREATE TABLE IF NOT EXISTS tidelock.segment (
  item text COLLATE "C",
  number int,
  sale text NOT NULL,
  fence bigint NOT NULL,             -- the newest mapping that anybody went by
  remaining bigint NOT NULL CHECK (remaining >= 0),
  came bigint NOT NULL,              -- filled and brought, ever
  lent bigint NOT NULL DEFAULT 0,    -- ever
  held bigint NOT NULL DEFAULT 0,
  returned bigint NOT NULL DEFAULT 0,
  pending bigint NOT NULL DEFAULT 0, -- transfers lent and not settled
  next_end bigint,                   -- when the next reservation ends, at the earliest
  over bigint,                       -- when it is forgotten
  PRIMARY KEY (item, number)
) WITH (fillfactor = 50);

-- Orders by what became of them: t taken, h held, r returned, v void.
CREATE TABLE IF NOT EXISTS tidelock.stock_order (
  item text COLLATE "C",
  number int,
  id text COLLATE "C",
  standing "char" NOT NULL,
  n bigint NOT NULL,
  ends bigint,                       -- of a reservation
  PRIMARY KEY (item, number, id)
);
CREATE INDEX IF NOT EXISTS stock_order_ends ON tidelock.stock_order (item, number, ends) WHERE ends IS NOT NULL;

CREATE TABLE IF NOT EXISTS tidelock.transfer (
  item text COLLATE "C",
  number int,
  id uuid,
  brought boolean,                   -- to this segment, else it was lent by it
  n bigint NOT NULL,
  target int NOT NULL,
  since bigint NOT NULL,
  settled boolean NOT NULL,
  PRIMARY KEY (item, number, id, brought)
);

-- Of the version before: their steps named no sale.
DROP FUNCTION IF EXISTS tidelock.stock_replan(text, bigint, text, bigint);
DROP FUNCTION IF EXISTS tidelock.stock_order_steps(text[], int[], bigint[], text[], text[], bigint[], bigint[], text[], bigint[]);
DROP FUNCTION IF EXISTS tidelock.stock_lend(text, int, text, bigint, int);
DROP FUNCTION IF EXISTS tidelock.stock_bring(text, int, text, bigint);
DROP FUNCTION IF EXISTS tidelock.stock_settle(text, int, text);
DROP FUNCTION IF EXISTS tidelock.stock_look(text, int);
DROP FUNCTION IF EXISTS tidelock.stock_close(text, int, bigint);

-- Forgets a segment.
CREATE OR REPLACE FUNCTION tidelock.stock_forget(p_item text, p_number int) RETURNS void LANGUAGE sql VOLATILE AS $$
  DELETE FROM tidelock.stock_order WHERE item = p_item AND number = p_number;
  DELETE FROM tidelock.transfer WHERE item = p_item AND number = p_number;
  DELETE FROM tidelock.segment WHERE item = p_item AND number = p_number;
$$;

-- Locks a segment; null if there is none.
CREATE OR REPLACE FUNCTION tidelock.stock_open(p_item text, p_number int) RETURNS tidelock.segment
  LANGUAGE plpgsql AS $$
DECLARE
  s tidelock.segment;
BEGIN
  PERFORM tidelock.commits(true);
  SELECT * INTO s FROM tidelock.segment WHERE item = p_item AND number = p_number FOR UPDATE;
  IF s.over <= tidelock.now_micros() THEN
    PERFORM tidelock.stock_forget(p_item, p_number);
    RETURN NULL;
  END IF;
  RETURN s;
END $$;

-- Reservations that are over come back. The segment is not written yet.
CREATE OR REPLACE FUNCTION tidelock.stock_lapse(s tidelock.segment) RETURNS tidelock.segment LANGUAGE plpgsql AS $$
DECLARE
  p_at bigint := tidelock.now_micros();
  back bigint;
BEGIN
  IF s.next_end IS NULL OR s.next_end > p_at THEN RETURN s; END IF;
  WITH lapsed AS (
    UPDATE tidelock.stock_order SET standing = 'r', ends = NULL
    WHERE item = s.item AND number = s.number AND ends <= p_at RETURNING n
  )
  SELECT coalesce(sum(n), 0) INTO back FROM lapsed;
  SELECT min(ends) INTO s.next_end FROM tidelock.stock_order
    WHERE item = s.item AND number = s.number AND ends IS NOT NULL;
  s.remaining := s.remaining + back;
  s.held := s.held - back;
  s.returned := s.returned + back;
  RETURN s;
END $$;

-- Writes a segment that was opened.
CREATE OR REPLACE FUNCTION tidelock.stock_write(s tidelock.segment) RETURNS void LANGUAGE sql VOLATILE AS $$
  UPDATE tidelock.segment SET fence = s.fence, remaining = s.remaining, came = s.came, lent = s.lent, held = s.held,
    returned = s.returned, pending = s.pending, next_end = s.next_end, over = s.over
  WHERE item = s.item AND number = s.number
$$;

-- The plan of an item: its version and text, or no row.
CREATE OR REPLACE FUNCTION tidelock.stock_plan_of(p_item text) RETURNS TABLE (version bigint, plan text)
  LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT p.version, p.plan FROM tidelock.stock_plan p
  WHERE p.item = p_item AND (p.over IS NULL OR p.over > tidelock.now_micros())
$$;

-- Writes a plan in place of the one before, or where there is none: `p_before` is null then. Says whether it was written.
CREATE OR REPLACE FUNCTION tidelock.stock_replan(p_item text, p_before text, p_plan text, p_keep bigint)
  RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p_at bigint := tidelock.now_micros();
BEGIN
  PERFORM tidelock.commits(true);
  DELETE FROM tidelock.stock_plan WHERE item = p_item AND over <= p_at;
  IF p_before IS NULL THEN
    INSERT INTO tidelock.stock_plan VALUES (p_item, 1, p_plan, p_at + p_keep) ON CONFLICT DO NOTHING;
  ELSE
    UPDATE tidelock.stock_plan SET version = version + 1, plan = p_plan, over = p_at + p_keep
    WHERE item = p_item AND plan = p_before;
  END IF;
  RETURN ARRAY[5, CASE WHEN FOUND THEN 1 ELSE 0 END];
END $$;

-- The steps answer numbers: {0} no such segment | {1, standing, n} of an order, by the letter's number, 117 unknown
--   | {2, remaining, pending} not enough | {3, mapping} the caller's is old | {4, n, pending} lent | {5} done
--   | {6, 1 if it was brought before} | {7} it belongs to another sale, and nothing was changed | {10, …} counts

-- Makes a segment with its share of the stock, unless it is there. Forgets some that are over.
CREATE OR REPLACE FUNCTION tidelock.stock_fill(p_item text, p_number int, p_sale text, p_fence bigint, p_n bigint)
  RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s tidelock.segment := tidelock.stock_open(p_item, p_number);
BEGIN
  IF s.item IS NULL THEN
    INSERT INTO tidelock.segment (item, number, sale, fence, remaining, came)
      VALUES (p_item, p_number, p_sale, p_fence, p_n, p_n) ON CONFLICT DO NOTHING;
    PERFORM tidelock.stock_forget(o.item, o.number) FROM (
      SELECT item, number FROM tidelock.segment WHERE over <= tidelock.now_micros() LIMIT 4 FOR UPDATE SKIP LOCKED) o;
    SELECT * INTO STRICT s FROM tidelock.segment WHERE item = p_item AND number = p_number;
  END IF;
  RETURN ARRAY[CASE WHEN s.sale = p_sale THEN 5 ELSE 7 END];
END $$;

-- Brings stock in, once; 0 only asks whether it was brought. Says so, and what the segment is then.
CREATE OR REPLACE FUNCTION tidelock.stock_brings(INOUT s tidelock.segment, p_transfer text, p_n bigint,
  OUT before boolean) LANGUAGE plpgsql AS $$
BEGIN
  before := EXISTS (SELECT FROM tidelock.transfer
    WHERE item = s.item AND number = s.number AND id = p_transfer::uuid AND brought);
  IF NOT before AND p_n > 0 THEN
    INSERT INTO tidelock.transfer VALUES (s.item, s.number, p_transfer::uuid, true, p_n, s.number, 0, true);
    s.remaining := s.remaining + p_n;
    s.came := s.came + p_n;
  END IF;
END $$;

-- Steps on orders, one after the other, in one commit; three numbers for each, in order. `p_hows`: t takes `p_ns`, all or
-- nothing (0 only asks how the order stands), for `p_holds` microseconds unless that is null, after `p_transfers` was
-- brought unless that is null; g what it took comes back, c its reservation is confirmed, v it is never to be taken.
-- Those of one segment come together, and segments in one order, which is the same for all clients: nobody waits for one that
-- is locked by somebody who waits for his.
CREATE OR REPLACE FUNCTION tidelock.stock_order_steps(p_items text[], p_numbers int[], p_sales text[], p_fences bigint[],
  p_orders text[], p_hows text[], p_ns bigint[], p_holds bigint[], p_transfers text[], p_brought bigint[]) RETURNS bigint[]
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  a record;
  at_item text;
  at_number int;
  s tidelock.segment;
  o tidelock.stock_order;
  after "char";
  answers bigint[] := '{}';
BEGIN
  FOR a IN
    SELECT * FROM unnest(p_items, p_numbers, p_sales, p_fences, p_orders, p_hows, p_ns, p_holds, p_transfers, p_brought)
      AS a (item, number, sale, fence, id, how, n, hold, transfer, brought)
  LOOP
    IF at_item IS DISTINCT FROM a.item OR at_number IS DISTINCT FROM a.number THEN
      IF s.item IS NOT NULL THEN PERFORM tidelock.stock_write(s); END IF;
      at_item := a.item;
      at_number := a.number;
      s := tidelock.stock_open(at_item, at_number);
    END IF;
    IF s.item IS NULL THEN
      answers := answers || ARRAY[0::bigint, 0, 0];
      CONTINUE;
    END IF;
    IF s.sale <> a.sale THEN
      answers := answers || ARRAY[7::bigint, 0, 0];
      CONTINUE;
    END IF;
    IF a.transfer IS NOT NULL THEN
      SELECT (b.s).* INTO s FROM tidelock.stock_brings(s, a.transfer, a.brought) b;
    END IF;
    -- Only a close closes; and after it, it is only asked how an order stands.
    IF a.fence < s.fence OR a.fence = 9007199254740991 AND s.fence <> a.fence THEN
      answers := answers || ARRAY[3, s.fence, 0];
      CONTINUE;
    END IF;
    s.fence := a.fence;
    IF a.fence = 9007199254740991 THEN a.n := 0; END IF;
    SELECT * INTO o FROM tidelock.stock_order WHERE item = a.item AND number = a.number AND id = a.id;
    IF a.how <> 't' OR s.remaining < a.n OR o.standing = 'h' THEN
      s := tidelock.stock_lapse(s);
      SELECT * INTO o FROM tidelock.stock_order WHERE item = a.item AND number = a.number AND id = a.id;
    END IF;
    after := coalesce(o.standing, 'u');
    IF a.how = 't' THEN
      IF o.id IS NULL AND s.remaining < a.n THEN
        answers := answers || ARRAY[2, s.remaining, s.pending];
        CONTINUE;
      ELSIF o.id IS NULL AND a.n > 0 THEN
        after := CASE WHEN a.hold IS NULL THEN 't' ELSE 'h' END;
        o.n := a.n;
        s.remaining := s.remaining - a.n;
        IF after = 'h' THEN
          o.ends := tidelock.now_micros() + a.hold;
          s.held := s.held + a.n;
          s.next_end := least(s.next_end, o.ends);
        END IF;
        INSERT INTO tidelock.stock_order VALUES (a.item, a.number, a.id, after, o.n, o.ends);
      END IF;
    ELSIF o.id IS NULL AND a.how <> 'c' THEN
      after := 'v';
      INSERT INTO tidelock.stock_order VALUES (a.item, a.number, a.id, after, 0, NULL);
    ELSIF a.how = 'g' AND o.standing IN ('t', 'h') THEN
      after := 'r';
      s.remaining := s.remaining + o.n;
      s.returned := s.returned + o.n;
    ELSIF a.how = 'c' AND o.standing = 'h' THEN
      after := 't';
    END IF;
    IF o.id IS NOT NULL AND after <> o.standing THEN
      IF o.standing = 'h' THEN s.held := s.held - o.n; END IF;
      UPDATE tidelock.stock_order SET standing = after, ends = NULL
      WHERE item = a.item AND number = a.number AND id = a.id;
    END IF;
    answers := answers || ARRAY[1, ascii(after::text), coalesce(o.n, 0)];
  END LOOP;
  IF s.item IS NOT NULL THEN PERFORM tidelock.stock_write(s); END IF;
  RETURN answers;
END $$;

-- Takes stock out, as much as there is up to what is asked for, to be brought to another segment.
CREATE OR REPLACE FUNCTION tidelock.stock_lend(p_item text, p_number int, p_sale text, p_transfer text, p_n bigint, p_to int)
  RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s tidelock.segment := tidelock.stock_open(p_item, p_number);
  lent bigint;
BEGIN
  IF s.item IS NULL THEN RETURN ARRAY[0]; END IF;
  IF s.sale <> p_sale THEN RETURN ARRAY[7]; END IF;
  s := tidelock.stock_lapse(s);
  SELECT n INTO lent FROM tidelock.transfer
    WHERE item = p_item AND number = p_number AND id = p_transfer::uuid AND NOT brought;
  IF lent IS NULL THEN
    -- After the end of a sale nothing is written that would outlive it.
    lent := CASE WHEN s.fence = 9007199254740991 THEN 0 ELSE least(p_n, s.remaining) END;
    IF lent > 0 THEN
      s.remaining := s.remaining - lent;
      s.lent := s.lent + lent;
      s.pending := s.pending + 1;
      INSERT INTO tidelock.transfer
        VALUES (p_item, p_number, p_transfer::uuid, false, lent, p_to, tidelock.now_micros(), false);
    END IF;
  END IF;
  PERFORM tidelock.stock_write(s);
  RETURN ARRAY[4, lent, s.pending];
END $$;

CREATE OR REPLACE FUNCTION tidelock.stock_bring(p_item text, p_number int, p_sale text, p_transfer text, p_n bigint)
  RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s tidelock.segment := tidelock.stock_open(p_item, p_number);
  b record;
BEGIN
  IF s.item IS NULL THEN RETURN ARRAY[0]; END IF;
  IF s.sale <> p_sale THEN RETURN ARRAY[7]; END IF;
  SELECT * INTO b FROM tidelock.stock_brings(s, p_transfer, p_n);
  PERFORM tidelock.stock_write(b.s);
  RETURN ARRAY[6, CASE WHEN b.before THEN 1 ELSE 0 END];
END $$;

-- What was lent has been brought. It is remembered, so that a late repetition lends nothing.
CREATE OR REPLACE FUNCTION tidelock.stock_settle(p_item text, p_number int, p_sale text, p_transfer text) RETURNS bigint[]
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s tidelock.segment := tidelock.stock_open(p_item, p_number);
BEGIN
  IF s.item IS NULL THEN RETURN ARRAY[0]; END IF;
  IF s.sale <> p_sale THEN RETURN ARRAY[7]; END IF;
  UPDATE tidelock.transfer SET settled = true
  WHERE item = p_item AND number = p_number AND id = p_transfer::uuid AND NOT brought AND NOT settled;
  IF FOUND THEN
    s.pending := s.pending - 1;
    PERFORM tidelock.stock_write(s);
  END IF;
  RETURN ARRAY[5];
END $$;

-- Counts: {10, remaining, sold, held, returned, then for each transfer that is not settled: both halves of its id, n, to, age}.
CREATE OR REPLACE FUNCTION tidelock.stock_look(p_item text, p_number int, p_sale text) RETURNS bigint[]
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s tidelock.segment := tidelock.stock_open(p_item, p_number);
  t record;
  answer bigint[];
BEGIN
  IF s.item IS NULL THEN RETURN ARRAY[0]; END IF;
  IF s.sale <> p_sale THEN RETURN ARRAY[7]; END IF;
  s := tidelock.stock_lapse(s);
  PERFORM tidelock.stock_write(s);
  answer := ARRAY[10, s.remaining, s.came - s.lent - s.remaining - s.held, s.held, s.returned];
  FOR t IN
    SELECT replace(id::text, '-', '') id, n, target, greatest(0, tidelock.now_micros() - since) age
    FROM tidelock.transfer WHERE item = p_item AND number = p_number AND NOT brought AND NOT settled
  LOOP
    answer := answer || ARRAY[('x' || left(t.id, 16))::bit(64)::bigint, ('x' || right(t.id, 16))::bit(64)::bigint,
      t.n, t.target, t.age];
  END LOOP;
  RETURN answer;
END $$;

-- Turns away whoever wants to take. The segment is forgotten after a while.
CREATE OR REPLACE FUNCTION tidelock.stock_close(p_item text, p_number int, p_sale text, p_keep bigint) RETURNS bigint[]
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s tidelock.segment := tidelock.stock_open(p_item, p_number);
BEGIN
  IF s.item IS NULL THEN RETURN ARRAY[0]; END IF;
  IF s.sale <> p_sale THEN RETURN ARRAY[7]; END IF;
  s.fence := 9007199254740991;
  s.over := tidelock.now_micros() + p_keep;
  PERFORM tidelock.stock_write(s);
  RETURN ARRAY[5];
END $$;

-- Nobody but the owner may do more than call the verbs: see docs/backends/postgres.md for a role that may.
REVOKE ALL ON ALL TABLES IN SCHEMA tidelock FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tidelock FROM PUBLIC;

-- A role that was let call verbs of an earlier revision may call those that took their place, or were added to them.
DO $$
DECLARE
  g record;
BEGIN
  FOR g IN SELECT n.oid::regprocedure AS new, a.grantee::regrole AS who
    FROM (VALUES ('leave', 'exit'), ('advisory_leave', 'advisory_exit'), ('leave', 'together'), ('exit', 'together'),
      ('hello', 'kept'), ('look', 'follow')) v (old, new)
    JOIN pg_proc p ON p.proname = v.old AND p.pronamespace = 'tidelock'::regnamespace
    JOIN pg_proc n ON n.proname = v.new AND n.pronamespace = p.pronamespace, aclexplode(p.proacl) a
    WHERE a.grantee NOT IN (0, p.proowner)
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', g.new, g.who);
  END LOOP;
END $$;
