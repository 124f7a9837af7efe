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
      ('hello', 'kept'), ('look', 'follow'), ('renew', 'renew_together')) v (old, new)
    JOIN pg_proc p ON p.proname = v.old AND p.pronamespace = 'tidelock'::regnamespace
    JOIN pg_proc n ON n.proname = v.new AND n.pronamespace = p.pronamespace, aclexplode(p.proacl) a
    WHERE a.grantee NOT IN (0, p.proowner)
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', g.new, g.who);
  END LOOP;
END $$;
