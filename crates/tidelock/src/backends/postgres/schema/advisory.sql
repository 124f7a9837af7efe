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
