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
