-- The locks of tidelock (https://docs.rs/tidelock). May be run again: what is there stays.
-- One transaction; whoever comes at the same time waits here.
SELECT pg_advisory_xact_lock(7594868131420104811);
CREATE SCHEMA IF NOT EXISTS tidelock;
REVOKE ALL ON SCHEMA tidelock FROM PUBLIC;

-- Which functions are here. A client of another version says so instead of calling them.
CREATE OR REPLACE FUNCTION tidelock.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';

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
  claims tidelock.claim[]  -- null: nobody is in line
) WITH (fillfactor = 50, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_threshold = 1000000, vacuum_truncate = off);
-- A line is read and written whole: to compress it or to keep it elsewhere costs more than it saves.
ALTER TABLE tidelock.line ALTER claims SET STORAGE EXTERNAL;

-- Claims that were left while a question for them was not answered. If it arrives after all it takes nothing.
CREATE TABLE IF NOT EXISTS tidelock.gone (
  id uuid PRIMARY KEY,
  since bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS gone_since ON tidelock.gone (since);

-- What has to be known after a restart: how long leases may be, and on which timeline they were given.
CREATE TABLE IF NOT EXISTS tidelock.state (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  longest bigint NOT NULL DEFAULT 0,
  timeline text NOT NULL
);
INSERT INTO tidelock.state (timeline) VALUES (left(pg_walfile_name(pg_current_wal_lsn()), 8))
  ON CONFLICT DO NOTHING;

-- The server empties an unlogged table when it recovers from a crash, and on a standby that is promoted; in both
-- cases commits may have been lost that clients rely on. Without this row nothing is granted for a while.
CREATE UNLOGGED TABLE IF NOT EXISTS tidelock.awake (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  quiet_until bigint NOT NULL
);
-- Only when the tables are new: a server that has just recovered has to find out by itself.
INSERT INTO tidelock.awake (quiet_until) SELECT 0 FROM tidelock.state WHERE longest = 0 ON CONFLICT DO NOTHING;

-- Where the sweep of names that nobody uses goes on.
CREATE UNLOGGED TABLE IF NOT EXISTS tidelock.broom (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  name text COLLATE "C" NOT NULL
);
