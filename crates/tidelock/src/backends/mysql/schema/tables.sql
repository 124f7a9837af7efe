-- One row for each name that is in use, or was within a day. Nearly every line has one claim: it stands in
-- this row. Longer lines stand in tidelock_claims, and then `lapses` is when the first of them may lapse.
-- `late` is until when a claim may come that is in tidelock_gone; 0 if none. `followed`: those in tidelock_followers want to
-- hear of the next change of holders.
-- Times are microseconds since 1970, UTC.
CREATE TABLE IF NOT EXISTS tidelock_lines (
  name VARBINARY(512) NOT NULL PRIMARY KEY,
  day INT NOT NULL,
  epoch BIGINT NOT NULL,
  many TINYINT NOT NULL DEFAULT 0,
  client BIGINT UNSIGNED NULL,
  claim BIGINT UNSIGNED NOT NULL DEFAULT 0,
  weight INT UNSIGNED NOT NULL DEFAULT 0,
  total INT UNSIGNED NOT NULL DEFAULT 0,
  owner VARBINARY(128) NOT NULL DEFAULT '',
  label VARBINARY(1280) NOT NULL DEFAULT '',
  ttl BIGINT NOT NULL DEFAULT 0,
  since BIGINT NOT NULL DEFAULT 0,
  lapses BIGINT NOT NULL DEFAULT 0,
  late BIGINT NOT NULL DEFAULT 0,
  followed TINYINT NOT NULL DEFAULT 0,
  KEY by_day (day)
) ENGINE = InnoDB
//
-- The claims of longer lines, in the order of `place`. `hold` is 0 for one that waits, 1 for one that holds,
-- 2 for one that rides on the hold of its owner with the same epoch. `weight` is 0 for an exclusive claim,
-- `total` is 0 for readers. `pushed` claims became holders while they waited: their client has to hear of it.
CREATE TABLE IF NOT EXISTS tidelock_claims (
  name VARBINARY(512) NOT NULL,
  place BIGINT NOT NULL,
  client BIGINT UNSIGNED NOT NULL,
  claim BIGINT UNSIGNED NOT NULL,
  weight INT UNSIGNED NOT NULL,
  total INT UNSIGNED NOT NULL,
  owner VARBINARY(128) NOT NULL,
  label VARBINARY(1280) NOT NULL,
  ttl BIGINT NOT NULL,
  since BIGINT NOT NULL,
  lapses BIGINT NOT NULL,
  hold TINYINT NOT NULL,
  epoch BIGINT NOT NULL,
  held BIGINT NOT NULL,
  pushed TINYINT NOT NULL,
  PRIMARY KEY (name, place),
  KEY by_client (client, claim)
) ENGINE = InnoDB
//
-- Earlier revisions made labels shorter than what a candidate of an election advertises with its own.
ALTER TABLE tidelock_lines MODIFY label VARBINARY(1280) NOT NULL DEFAULT ''
//
ALTER TABLE tidelock_claims MODIFY label VARBINARY(1280) NOT NULL
//
-- Earlier revisions had nobody that follows a name. MySQL does not know ADD COLUMN IF NOT EXISTS.
SET @tidelock_alter = IF(EXISTS (SELECT 1 FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'tidelock_lines' AND COLUMN_NAME = 'followed'),
  'DO 0', 'ALTER TABLE tidelock_lines ADD followed TINYINT NOT NULL DEFAULT 0')
//
PREPARE tidelock_alter FROM @tidelock_alter
//
EXECUTE tidelock_alter
//
DEALLOCATE PREPARE tidelock_alter
//
-- Clients that want to hear of the next change of holders, each with a number that it uses once. `changed`: there was one, and
-- the client has not asked again. Written only by those who have the line of the name locked.
CREATE TABLE IF NOT EXISTS tidelock_followers (
  name VARBINARY(512) NOT NULL,
  client BIGINT UNSIGNED NOT NULL,
  number BIGINT UNSIGNED NOT NULL,
  changed TINYINT NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (name, client),
  KEY by_client (client, changed),
  KEY by_age (changed, since)
) ENGINE = InnoDB
//
-- Claims that were left while a question for them was not answered. If it arrives after all it takes nothing.
CREATE TABLE IF NOT EXISTS tidelock_gone (
  client BIGINT UNSIGNED NOT NULL,
  claim BIGINT UNSIGNED NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (client, claim),
  KEY by_age (since)
) ENGINE = InnoDB
//
-- Claims that were put out, until their client has heard of it.
CREATE TABLE IF NOT EXISTS tidelock_evictions (
  client BIGINT UNSIGNED NOT NULL,
  claim BIGINT UNSIGNED NOT NULL,
  name VARBINARY(512) NOT NULL,
  reason VARBINARY(1024) NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (client, claim),
  KEY by_age (since)
) ENGINE = InnoDB
//
-- For how many days a name is kept that nobody uses, besides the day of its last use: to be changed by hand.
CREATE TABLE IF NOT EXISTS tidelock_settings (
  one TINYINT NOT NULL PRIMARY KEY,
  days INT UNSIGNED NOT NULL
) ENGINE = InnoDB
//
INSERT IGNORE INTO tidelock_settings VALUES (1, 1)
//
