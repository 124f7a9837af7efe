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
    -- strangers
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
CREATE OR REPLACE FUNCTION tidelock.revision() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 5';

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
