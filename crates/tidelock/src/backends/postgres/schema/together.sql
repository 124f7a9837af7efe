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
