-- Nobody but the owner may do more than call the verbs: see docs/backends/postgres.md for a role that may.
REVOKE ALL ON ALL TABLES IN SCHEMA tidelock FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tidelock FROM PUBLIC;

-- A role that was let call verbs of revision 1 may call those that took their place.
DO $$
DECLARE
  g record;
BEGIN
  FOR g IN SELECT v.new, a.grantee::regrole AS who
    FROM (VALUES ('leave', 'exit'), ('advisory_leave', 'advisory_exit')) v (old, new)
    JOIN pg_proc p ON p.proname = v.old AND p.pronamespace = 'tidelock'::regnamespace, aclexplode(p.proacl) a
    WHERE a.grantee NOT IN (0, p.proowner)
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION tidelock.%I(text, uuid, text) TO %s', g.new, g.who);
  END LOOP;
END $$;
