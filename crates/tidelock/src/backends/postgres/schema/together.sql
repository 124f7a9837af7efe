-- What goes together in one statement: steps that need no rule. All others are asked with the verbs, where the rules are.

-- Enters and leaves of one client. A free line takes a claim, and a claim that is alone in its line leaves it.
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

-- Renewals of one client: of claims in lines that move for no other reason. Somebody holds, and nobody has lapsed, so nothing
-- changes but when these lapse. A claim that is not found is left to the verb as well: it says that it is gone.
-- Answers five times as many numbers as were renewed: the numbers of these claims, then four columns of what enter answers.
-- Never waits for a row: one that somebody else has locked is not done. It commits before the verb is asked for the rest, which
-- does wait: two calls that each have rows and wait for those of the other would be a deadlock.
CREATE OR REPLACE FUNCTION tidelock.renew_together(p_names text[], p_ids uuid[]) RETURNS bigint[]
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  -- Earlier than the change: then leases end early rather than late.
  p_at bigint := tidelock.now_micros();
  quiet_until bigint := nullif(current_setting('tidelock.quiet_until', true), '')::bigint;
  answers bigint[];
  is_long boolean;
  mode text := tidelock.commits(false);
  -- As above.
  plans text := concat(set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true), set_config('enable_material', 'off', true));
BEGIN
  IF coalesce(quiet_until, p_at + 1) > p_at THEN RETURN NULL; END IF;
  WITH asked AS MATERIALIZED (
    SELECT a.name, array_agg(a.id) AS ids, array_agg(a.number) AS numbers
    FROM unnest(p_names, p_ids) WITH ORDINALITY AS a (name, id, number) GROUP BY a.name
  ), locked AS MATERIALIZED (
    SELECT a.ids, a.numbers, l.at, f.* FROM asked a CROSS JOIN LATERAL (
      -- Soon after a quiet time somebody may be in line who had to wait for its end, but not behind an exclusive hold.
      SELECT t.ctid AS at, t.claims FROM tidelock.line t
      WHERE t.name = a.name AND (t.claims[1]).hold = 1 AND (quiet_until <= p_at - 3600000000 OR (t.claims[1]).share = 0)
      FOR UPDATE SKIP LOCKED
    ) l CROSS JOIN LATERAL (
      SELECT count(*) FILTER (WHERE c.hold > 0)::int AS held, count(*) FILTER (WHERE c.hold = 0) AS waiting, min(c.lapses) AS first,
        count(*) FILTER (WHERE c.id = ANY (a.ids)) AS found, min(c.place) FILTER (WHERE c.id = ANY (a.ids)) AS place
      FROM unnest(l.claims) WITH ORDINALITY
        AS c (id, ttl, since, lapses, hold, epoch, held_since, share, n, of, detached, owner, label, place)
    ) f WHERE f.first > p_at
  ), one AS (
    -- Nearly always one claim of a line: the others are not taken apart and put together again.
    UPDATE tidelock.line l SET used = p_at, claims[a.place].lapses = p_at + (l.claims[a.place]).ttl
    FROM locked a WHERE l.ctid = a.at AND a.found = 1
    RETURNING a.*, l.claims
  ), several AS (
    UPDATE tidelock.line l SET used = p_at, claims = (
      SELECT array_agg(ROW(c.id, c.ttl, c.since, CASE WHEN c.id = ANY (a.ids) THEN p_at + c.ttl ELSE c.lapses END, c.hold, c.epoch,
        c.held_since, c.share, c.n, c.of, c.detached, c.owner, c.label)::tidelock.claim ORDER BY c.place)
      FROM unnest(l.claims) WITH ORDINALITY
        AS c (id, ttl, since, lapses, hold, epoch, held_since, share, n, of, detached, owner, label, place))
    FROM locked a WHERE l.ctid = a.at AND a.found > 1
    RETURNING a.*, l.claims
  )
  SELECT array_agg(s.number) || array_agg(s.kind) || array_agg(s.x) || array_agg(s.y) || array_agg(s.z), bool_or(s.is_long)
  INTO answers, is_long FROM (SELECT * FROM one UNION ALL SELECT * FROM several) a CROSS JOIN LATERAL (
    SELECT a.numbers[array_position(a.ids, c.id)] AS number, c.hold > 0 AND c.ttl > tidelock.long_lease() AS is_long,
      CASE WHEN c.hold > 0 THEN 1 ELSE 2 END::bigint AS kind,
      CASE WHEN c.hold > 0 THEN c.epoch ELSE c.place - 1 END AS x,
      CASE WHEN c.hold > 0 THEN c.ttl
        -- Only the first that waits is told when to look again.
        WHEN c.place = a.held + 1 THEN (SELECT min(h.lapses) - p_at FROM unnest(a.claims[:a.held]) h) ELSE -1 END AS y,
      CASE WHEN c.hold > 0 THEN a.waiting ELSE 0 END AS z
    FROM unnest(a.claims) WITH ORDINALITY
      AS c (id, ttl, since, lapses, hold, epoch, held_since, share, n, of, detached, owner, label, place)
    WHERE c.id = ANY (a.ids)
  ) s;
  IF is_long THEN mode := tidelock.commits(true); END IF;
  PERFORM tidelock.sweep(0.02::float8);
  RETURN answers;
END $$;
