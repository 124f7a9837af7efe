-- Nobody but the owner may do more than call the verbs: see docs/backends/postgres.md for a role that may.
REVOKE ALL ON ALL TABLES IN SCHEMA tidelock FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tidelock FROM PUBLIC;
