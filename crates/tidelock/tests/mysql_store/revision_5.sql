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
DROP PROCEDURE IF EXISTS tidelock_version
//
-- Stock: plans of items, and segments with their orders and with what was lent and brought. The rules are those of
-- src/stock/ledger.rs. Times are microseconds since 1970, UTC.
CREATE TABLE IF NOT EXISTS tidelock_stock_plans (
  item VARBINARY(512) NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL,
  plan MEDIUMBLOB NOT NULL,
  ends BIGINT NULL
) ENGINE = InnoDB
//
-- `fence` is the newest mapping that anybody went by, `came` is all that was filled and brought, ever, `pending` is how
-- many transfers were lent and not settled, `next_end` is when the next reservation ends at the earliest. After `ends`
-- the segment is forgotten.
CREATE TABLE IF NOT EXISTS tidelock_stock_segments (
  item VARBINARY(512) NOT NULL,
  number INT UNSIGNED NOT NULL,
  sale BIGINT UNSIGNED NOT NULL,
  fence BIGINT NOT NULL,
  remaining BIGINT UNSIGNED NOT NULL,
  came BIGINT NOT NULL,
  lent BIGINT NOT NULL DEFAULT 0,
  held BIGINT NOT NULL DEFAULT 0,
  returned BIGINT NOT NULL DEFAULT 0,
  pending BIGINT NOT NULL DEFAULT 0,
  next_end BIGINT NULL,
  ends BIGINT NULL,
  PRIMARY KEY (item, number),
  KEY by_end (ends)
) ENGINE = InnoDB
//
-- Orders, by the number of a letter: t taken, h held, r returned, v void. `ends` is that of a reservation.
CREATE TABLE IF NOT EXISTS tidelock_stock_orders (
  item VARBINARY(512) NOT NULL,
  number INT UNSIGNED NOT NULL,
  id VARBINARY(128) NOT NULL,
  standing TINYINT UNSIGNED NOT NULL,
  n BIGINT NOT NULL,
  ends BIGINT NULL,
  PRIMARY KEY (item, number, id),
  KEY by_end (item, number, ends)
) ENGINE = InnoDB
//
-- What was brought to a segment, and what was lent by it.
CREATE TABLE IF NOT EXISTS tidelock_stock_transfers (
  item VARBINARY(512) NOT NULL,
  number INT UNSIGNED NOT NULL,
  id BINARY(16) NOT NULL,
  brought TINYINT NOT NULL,
  n BIGINT NOT NULL,
  target INT UNSIGNED NOT NULL,
  since BIGINT NOT NULL,
  settled TINYINT NOT NULL,
  PRIMARY KEY (item, number, id, brought)
) ENGINE = InnoDB
//
DROP PROCEDURE IF EXISTS tidelock_stock_forget
//
-- Forgets a segment.
CREATE PROCEDURE tidelock_stock_forget(p_item VARBINARY(512), p_number INT UNSIGNED)
MODIFIES SQL DATA
BEGIN
  DELETE FROM tidelock_stock_orders WHERE item = p_item AND number = p_number;
  DELETE FROM tidelock_stock_transfers WHERE item = p_item AND number = p_number;
  DELETE FROM tidelock_stock_segments WHERE item = p_item AND number = p_number;
END
//
DROP PROCEDURE IF EXISTS tidelock_stock_open
//
-- Locks a segment. `o_fence`: NULL if there is none. `o_sale` is the sale that it belongs to.
CREATE PROCEDURE tidelock_stock_open(p_item VARBINARY(512), p_number INT UNSIGNED, OUT o_now BIGINT,
  OUT o_sale BIGINT UNSIGNED, OUT o_fence BIGINT, OUT o_remaining BIGINT, OUT o_pending BIGINT)
MODIFIES SQL DATA
BEGIN
  DECLARE v_ends BIGINT;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET o_fence = NULL;
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(0);
  END IF;
  SELECT sale, fence, remaining, pending, ends INTO o_sale, o_fence, o_remaining, o_pending, v_ends
    FROM tidelock_stock_segments WHERE item = p_item AND number = p_number FOR UPDATE;
  SET o_now = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  IF v_ends <= o_now THEN
    CALL tidelock_stock_forget(p_item, p_number);
    SET o_fence = NULL;
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_stock_lapse
//
-- Reservations that are over come back.
CREATE PROCEDURE tidelock_stock_lapse(p_item VARBINARY(512), p_number INT UNSIGNED, p_now BIGINT,
  INOUT io_remaining BIGINT)
MODIFIES SQL DATA
BEGIN
  DECLARE v_next, v_back BIGINT;
  SELECT next_end INTO v_next FROM tidelock_stock_segments WHERE item = p_item AND number = p_number;
  IF v_next <= p_now THEN
    SELECT COALESCE(SUM(n), 0) INTO v_back FROM tidelock_stock_orders
      WHERE item = p_item AND number = p_number AND ends <= p_now;
    UPDATE tidelock_stock_orders SET standing = 114, ends = NULL
      WHERE item = p_item AND number = p_number AND ends <= p_now;
    SELECT MIN(ends) INTO v_next FROM tidelock_stock_orders WHERE item = p_item AND number = p_number;
    UPDATE tidelock_stock_segments
      SET remaining = remaining + v_back, held = held - v_back, returned = returned + v_back, next_end = v_next
      WHERE item = p_item AND number = p_number;
    SET io_remaining = io_remaining + v_back;
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_stock_plan
//
-- The plan of an item: its version and text, or no row.
CREATE PROCEDURE tidelock_stock_plan(p_item VARBINARY(512))
READS SQL DATA
BEGIN
  SELECT version, plan FROM tidelock_stock_plans
    WHERE item = p_item AND (ends IS NULL OR ends > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED));
END
//
DROP PROCEDURE IF EXISTS tidelock_stock_replan
//
-- Writes a plan in place of the one before, or where there is none: `p_before` is null then. Answers '5 1' if it was
-- written, else '5 0'.
CREATE PROCEDURE tidelock_stock_replan(p_item VARBINARY(512), p_before MEDIUMBLOB, p_plan MEDIUMBLOB, p_keep BIGINT)
MODIFIES SQL DATA
BEGIN
  DECLARE v_plan MEDIUMBLOB DEFAULT NULL;
  DECLARE v_version, v_ends BIGINT DEFAULT NULL;
  DECLARE v_now BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_version = 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(0);
  END IF;
  START TRANSACTION;
  -- The row is there before it is locked: of two that come first, one finds the other's.
  INSERT INTO tidelock_stock_plans VALUES (p_item, 0, '', NULL) ON DUPLICATE KEY UPDATE version = version;
  SELECT version, plan, ends INTO v_version, v_plan, v_ends FROM tidelock_stock_plans WHERE item = p_item FOR UPDATE;
  -- Version 0 is no plan.
  IF v_version = 0 OR v_ends <= v_now THEN
    SET v_plan = NULL;
  END IF;
  IF v_plan <=> p_before THEN
    UPDATE tidelock_stock_plans SET version = v_version + 1, plan = p_plan, ends = v_now + p_keep WHERE item = p_item;
    COMMIT;
    SELECT '5 1';
  ELSE
    ROLLBACK;
    SELECT '5 0';
  END IF;
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
-- The steps answer numbers: '0' no such segment | '1 standing n' of an order, by the letter's number, 117 unknown
-- | '2 remaining pending' not enough | '3 mapping' the caller's is old | '4 n pending' lent | '5' done
-- | '6 1' it was brought before | '7' it belongs to another sale, and nothing was changed | '10 …' counts
DROP PROCEDURE IF EXISTS tidelock_stock_fill
//
-- Makes a segment with its share of the stock, unless it is there. Forgets one that is over.
CREATE PROCEDURE tidelock_stock_fill(
  p_item VARBINARY(512), p_number INT UNSIGNED, p_sale BIGINT UNSIGNED, p_fence BIGINT, p_n BIGINT)
MODIFIES SQL DATA
BEGIN
  DECLARE v_now, v_fence, v_remaining, v_pending BIGINT;
  DECLARE v_sale BIGINT UNSIGNED;
  DECLARE v_item VARBINARY(512) DEFAULT NULL;
  DECLARE v_number INT UNSIGNED;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_item = NULL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  START TRANSACTION;
  CALL tidelock_stock_open(p_item, p_number, v_now, v_sale, v_fence, v_remaining, v_pending);
  INSERT INTO tidelock_stock_segments (item, number, sale, fence, remaining, came)
    VALUES (p_item, p_number, p_sale, p_fence, p_n, p_n) ON DUPLICATE KEY UPDATE sale = sale;
  SELECT sale INTO v_sale FROM tidelock_stock_segments WHERE item = p_item AND number = p_number;
  COMMIT;
  START TRANSACTION;
  SELECT item, number INTO v_item, v_number FROM tidelock_stock_segments WHERE ends <= v_now LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF v_item IS NOT NULL THEN
    CALL tidelock_stock_forget(v_item, v_number);
  END IF;
  COMMIT;
  SELECT IF(v_sale = p_sale, '5', '7');
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_stock_brings
//
-- Brings stock in, once; 0 only asks whether it was brought, which `o_before` says.
CREATE PROCEDURE tidelock_stock_brings(p_item VARBINARY(512), p_number INT UNSIGNED, p_transfer BINARY(16),
  p_n BIGINT, OUT o_before BIGINT, INOUT io_remaining BIGINT)
MODIFIES SQL DATA
BEGIN
  SELECT COUNT(*) INTO o_before FROM tidelock_stock_transfers
    WHERE item = p_item AND number = p_number AND id = p_transfer AND brought = 1;
  IF o_before = 0 AND p_n > 0 THEN
    INSERT INTO tidelock_stock_transfers VALUES (p_item, p_number, p_transfer, 1, p_n, p_number, 0, 1);
    UPDATE tidelock_stock_segments SET remaining = remaining + p_n, came = came + p_n
      WHERE item = p_item AND number = p_number;
    SET io_remaining = io_remaining + p_n;
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_stock_write
//
-- Writes what steps on orders made of a segment that is open. Nothing if there is none.
CREATE PROCEDURE tidelock_stock_write(p_item VARBINARY(512), p_number INT UNSIGNED, p_fence BIGINT, p_remaining BIGINT,
  p_held BIGINT, p_returned BIGINT)
MODIFIES SQL DATA
BEGIN
  IF p_fence IS NOT NULL THEN
    UPDATE tidelock_stock_segments
      SET fence = p_fence, remaining = p_remaining, held = held + p_held, returned = returned + p_returned
      WHERE item = p_item AND number = p_number;
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_stock_order_steps
//
-- Steps on orders, one after the other, in one commit; three numbers for each, in order. A line for each, with tabs between:
-- item, segment, how, sale, mapping, order, n, hold, transfer, brought. How: t takes n, all or nothing (0 only asks how the order
-- stands), for `hold` microseconds unless that is empty, after `transfer` was brought unless that is empty; g what it took
-- comes back, c its reservation is confirmed, v it is never to be taken.
-- Those of one segment come together, and segments in one order, which is the same for all clients: nobody waits for one
-- that is locked by somebody who waits for his.
CREATE PROCEDURE tidelock_stock_order_steps(p_steps MEDIUMBLOB)
MODIFIES SQL DATA
BEGIN
  DECLARE v_now, v_fence, v_remaining, v_pending, v_before BIGINT;
  DECLARE v_sale, v_step_sale BIGINT UNSIGNED;
  DECLARE v_held, v_returned BIGINT DEFAULT 0;
  DECLARE v_from, v_to INT UNSIGNED DEFAULT 1;
  DECLARE v_line VARBINARY(1024);
  DECLARE v_at, v_place VARBINARY(600) DEFAULT '';
  DECLARE v_item VARBINARY(512);
  DECLARE v_number INT UNSIGNED;
  DECLARE v_how BINARY(1);
  DECLARE v_step_fence, v_wanted, v_hold BIGINT;
  DECLARE v_order, v_transfer VARBINARY(128);
  DECLARE v_standing, v_after TINYINT UNSIGNED DEFAULT NULL;
  DECLARE v_n BIGINT;
  DECLARE v_is_new TINYINT;
  DECLARE v_answer VARCHAR(64);
  DECLARE v_answers MEDIUMTEXT DEFAULT NULL;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_standing = NULL, v_n = 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  START TRANSACTION;
  WHILE v_from < LENGTH(p_steps) DO
    SET v_to = LOCATE('\n', p_steps, v_from);
    SET v_line = SUBSTRING(p_steps, v_from, v_to - v_from);
    SET v_from = v_to + 1;
    SET v_place = SUBSTRING_INDEX(v_line, '\t', 2);
    IF v_place <> v_at THEN
      CALL tidelock_stock_write(v_item, v_number, v_fence, v_remaining, v_held, v_returned);
      SET v_at = v_place, v_held = 0, v_returned = 0;
      SET v_item = SUBSTRING_INDEX(v_place, '\t', 1), v_number = SUBSTRING_INDEX(v_place, '\t', -1);
      CALL tidelock_stock_open(v_item, v_number, v_now, v_sale, v_fence, v_remaining, v_pending);
    END IF;
    SET v_line = SUBSTRING(v_line, LENGTH(v_place) + 2);
    SET v_how = SUBSTRING_INDEX(v_line, '\t', 1);
    SET v_step_sale = SUBSTRING_INDEX(SUBSTRING_INDEX(v_line, '\t', 2), '\t', -1);
    SET v_step_fence = SUBSTRING_INDEX(SUBSTRING_INDEX(v_line, '\t', 3), '\t', -1);
    SET v_order = SUBSTRING_INDEX(SUBSTRING_INDEX(v_line, '\t', 4), '\t', -1);
    -- After the end of a sale it is only asked how an order stands.
    SET v_wanted = IF(v_step_fence = 9007199254740991, 0, SUBSTRING_INDEX(SUBSTRING_INDEX(v_line, '\t', 5), '\t', -1));
    SET v_hold = NULLIF(SUBSTRING_INDEX(SUBSTRING_INDEX(v_line, '\t', 6), '\t', -1), '');
    SET v_transfer = SUBSTRING_INDEX(SUBSTRING_INDEX(v_line, '\t', 7), '\t', -1);
    IF v_transfer <> '' AND v_fence IS NOT NULL AND v_sale = v_step_sale THEN
      CALL tidelock_stock_brings(v_item, v_number, UNHEX(v_transfer), SUBSTRING_INDEX(v_line, '\t', -1), v_before, v_remaining);
    END IF;
    IF v_fence IS NULL THEN
      SET v_answer = '0 0 0';
    ELSEIF v_sale <> v_step_sale THEN
      SET v_answer = '7 0 0';
    ELSEIF v_step_fence < v_fence OR v_step_fence = 9007199254740991 AND v_fence <> v_step_fence THEN
      -- Only a close closes.
      SET v_answer = CONCAT_WS(' ', 3, v_fence, 0);
    ELSE
      SET v_fence = v_step_fence;
      IF v_how <> 't' OR v_remaining < v_wanted THEN
        CALL tidelock_stock_lapse(v_item, v_number, v_now, v_remaining);
      END IF;
      SET v_is_new = v_how = 't' AND v_wanted BETWEEN 1 AND v_remaining;
      IF v_is_new THEN
        -- Most orders are new. Whether this one is, is found out by writing it: that costs less than to look first.
        BEGIN
          DECLARE CONTINUE HANDLER FOR 1062 SET v_is_new = 0;
          SET v_after = IF(v_hold IS NULL, 116, 104), v_n = v_wanted;
          INSERT INTO tidelock_stock_orders VALUES (v_item, v_number, v_order, v_after, v_n, v_now + v_hold);
        END;
      END IF;
      IF v_is_new THEN
        SET v_remaining = v_remaining - v_n;
        IF v_hold IS NOT NULL THEN
          SET v_held = v_held + v_n;
          -- At once: the next step may look for reservations that are over.
          UPDATE tidelock_stock_segments SET next_end = LEAST(COALESCE(next_end, v_now + v_hold), v_now + v_hold)
            WHERE item = v_item AND number = v_number;
        END IF;
      ELSE
        SELECT standing, n INTO v_standing, v_n FROM tidelock_stock_orders
          WHERE item = v_item AND number = v_number AND id = v_order;
        IF v_how = 't' AND v_standing = 104 THEN
          CALL tidelock_stock_lapse(v_item, v_number, v_now, v_remaining);
          SELECT standing, n INTO v_standing, v_n FROM tidelock_stock_orders
            WHERE item = v_item AND number = v_number AND id = v_order;
        END IF;
        SET v_after = COALESCE(v_standing, 117);
        IF v_standing IS NULL AND v_how = 't' AND v_wanted > 0 THEN
          SET v_after = NULL;
        ELSEIF v_standing IS NULL AND v_how IN ('g', 'v') THEN
          SET v_after = 118;
          INSERT INTO tidelock_stock_orders VALUES (v_item, v_number, v_order, v_after, 0, NULL);
        ELSEIF v_how = 'g' AND v_standing IN (116, 104) THEN
          SET v_after = 114, v_remaining = v_remaining + v_n, v_returned = v_returned + v_n;
        ELSEIF v_how = 'c' AND v_standing = 104 THEN
          SET v_after = 116;
        END IF;
        IF v_standing IS NOT NULL AND v_after <> v_standing THEN
          SET v_held = v_held - IF(v_standing = 104, v_n, 0);
          UPDATE tidelock_stock_orders SET standing = v_after, ends = NULL
            WHERE item = v_item AND number = v_number AND id = v_order;
        END IF;
      END IF;
      SET v_answer = IF(v_after IS NULL, CONCAT_WS(' ', 2, v_remaining, v_pending), CONCAT_WS(' ', 1, v_after, v_n));
    END IF;
    SET v_answers = CONCAT_WS(' ', v_answers, v_answer);
  END WHILE;
  CALL tidelock_stock_write(v_item, v_number, v_fence, v_remaining, v_held, v_returned);
  COMMIT;
  SELECT v_answers;
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_stock_lend
//
-- Takes stock out, as much as there is up to what is asked for, to be brought to another segment.
CREATE PROCEDURE tidelock_stock_lend(p_item VARBINARY(512), p_number INT UNSIGNED, p_sale BIGINT UNSIGNED,
  p_transfer BINARY(16), p_n BIGINT, p_to INT UNSIGNED)
MODIFIES SQL DATA
main: BEGIN
  DECLARE v_now, v_fence, v_remaining, v_pending BIGINT;
  DECLARE v_sale BIGINT UNSIGNED;
  DECLARE v_n BIGINT DEFAULT NULL;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_n = NULL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  START TRANSACTION;
  CALL tidelock_stock_open(p_item, p_number, v_now, v_sale, v_fence, v_remaining, v_pending);
  IF v_fence IS NULL OR v_sale <> p_sale THEN
    COMMIT;
    SELECT IF(v_fence IS NULL, '0', '7');
    LEAVE main;
  END IF;
  CALL tidelock_stock_lapse(p_item, p_number, v_now, v_remaining);
  SELECT n INTO v_n FROM tidelock_stock_transfers WHERE item = p_item AND number = p_number AND id = p_transfer AND brought = 0;
  IF v_n IS NULL THEN
    -- After the end of a sale nothing is written that would outlive it.
    SET v_n = IF(v_fence = 9007199254740991, 0, LEAST(p_n, v_remaining));
    IF v_n > 0 THEN
      INSERT INTO tidelock_stock_transfers VALUES (p_item, p_number, p_transfer, 0, v_n, p_to, v_now, 0);
      UPDATE tidelock_stock_segments SET remaining = remaining - v_n, lent = lent + v_n, pending = pending + 1
        WHERE item = p_item AND number = p_number;
      SET v_pending = v_pending + 1;
    END IF;
  END IF;
  COMMIT;
  SELECT CONCAT_WS(' ', 4, v_n, v_pending);
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_stock_bring
//
-- Brings stock in, once; 0 only asks whether it was brought.
CREATE PROCEDURE tidelock_stock_bring(p_item VARBINARY(512), p_number INT UNSIGNED, p_sale BIGINT UNSIGNED,
  p_transfer BINARY(16), p_n BIGINT)
MODIFIES SQL DATA
main: BEGIN
  DECLARE v_now, v_fence, v_remaining, v_pending BIGINT;
  DECLARE v_sale BIGINT UNSIGNED;
  DECLARE v_before BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  START TRANSACTION;
  CALL tidelock_stock_open(p_item, p_number, v_now, v_sale, v_fence, v_remaining, v_pending);
  IF v_fence IS NULL OR v_sale <> p_sale THEN
    COMMIT;
    SELECT IF(v_fence IS NULL, '0', '7');
    LEAVE main;
  END IF;
  CALL tidelock_stock_brings(p_item, p_number, p_transfer, p_n, v_before, v_remaining);
  COMMIT;
  SELECT CONCAT('6 ', v_before);
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_stock_settle
//
-- What was lent has been brought. It is remembered, so that a late repetition lends nothing.
CREATE PROCEDURE tidelock_stock_settle(p_item VARBINARY(512), p_number INT UNSIGNED, p_sale BIGINT UNSIGNED,
  p_transfer BINARY(16))
MODIFIES SQL DATA
main: BEGIN
  DECLARE v_now, v_fence, v_remaining, v_pending BIGINT;
  DECLARE v_sale BIGINT UNSIGNED;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  START TRANSACTION;
  CALL tidelock_stock_open(p_item, p_number, v_now, v_sale, v_fence, v_remaining, v_pending);
  IF v_fence IS NULL OR v_sale <> p_sale THEN
    COMMIT;
    SELECT IF(v_fence IS NULL, '0', '7');
    LEAVE main;
  END IF;
  -- What ROW_COUNT() says depends on a flag of the connection: the segment is locked, so look first.
  IF EXISTS (SELECT 1 FROM tidelock_stock_transfers
    WHERE item = p_item AND number = p_number AND id = p_transfer AND brought = 0 AND settled = 0) THEN
    UPDATE tidelock_stock_transfers SET settled = 1
      WHERE item = p_item AND number = p_number AND id = p_transfer AND brought = 0;
    UPDATE tidelock_stock_segments SET pending = pending - 1 WHERE item = p_item AND number = p_number;
  END IF;
  COMMIT;
  SELECT '5';
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_stock_look
//
-- Counts: '10 remaining sold held returned', then for each transfer that is not settled both halves of its id, n, to, age.
CREATE PROCEDURE tidelock_stock_look(p_item VARBINARY(512), p_number INT UNSIGNED, p_sale BIGINT UNSIGNED)
MODIFIES SQL DATA
main: BEGIN
  DECLARE v_now, v_fence, v_remaining, v_pending BIGINT;
  DECLARE v_sale BIGINT UNSIGNED;
  DECLARE v_counts, v_lent MEDIUMTEXT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  START TRANSACTION;
  CALL tidelock_stock_open(p_item, p_number, v_now, v_sale, v_fence, v_remaining, v_pending);
  IF v_fence IS NULL OR v_sale <> p_sale THEN
    COMMIT;
    SELECT IF(v_fence IS NULL, '0', '7');
    LEAVE main;
  END IF;
  CALL tidelock_stock_lapse(p_item, p_number, v_now, v_remaining);
  SELECT CONCAT_WS(' ', 10, remaining, came - lent - remaining - held, held, returned) INTO v_counts
    FROM tidelock_stock_segments WHERE item = p_item AND number = p_number;
  SELECT GROUP_CONCAT(CONCAT_WS(' ', CONV(HEX(LEFT(id, 8)), 16, 10), CONV(HEX(RIGHT(id, 8)), 16, 10), n, target,
      GREATEST(0, v_now - since)) SEPARATOR ' ') INTO v_lent
    FROM tidelock_stock_transfers WHERE item = p_item AND number = p_number AND brought = 0 AND settled = 0;
  COMMIT;
  SELECT CONCAT_WS(' ', v_counts, v_lent);
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_stock_close
//
-- Turns away whoever wants to take. The segment is forgotten after a while.
CREATE PROCEDURE tidelock_stock_close(p_item VARBINARY(512), p_number INT UNSIGNED, p_sale BIGINT UNSIGNED,
  p_keep BIGINT)
MODIFIES SQL DATA
main: BEGIN
  DECLARE v_now, v_fence, v_remaining, v_pending BIGINT;
  DECLARE v_sale BIGINT UNSIGNED;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  START TRANSACTION;
  CALL tidelock_stock_open(p_item, p_number, v_now, v_sale, v_fence, v_remaining, v_pending);
  IF v_fence IS NULL OR v_sale <> p_sale THEN
    COMMIT;
    SELECT IF(v_fence IS NULL, '0', '7');
    LEAVE main;
  END IF;
  UPDATE tidelock_stock_segments SET fence = 9007199254740991, ends = v_now + p_keep WHERE item = p_item AND number = p_number;
  COMMIT;
  SELECT '5';
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_refuse
//
-- Refuses a change on a server that is read-only: it was demoted, and another one grants the same locks now. The server
-- itself does not refuse, because procedures run with the rights of who made them, and those of an administrator
-- include writing here. Each verb that writes looks before it changes anything, and again when it has committed:
-- read_only may have been set in between, and then the change may be missing on the server that was promoted
-- (`p_late`). An answer that was sent before such an error does not count.
CREATE PROCEDURE tidelock_refuse(p_late TINYINT)
READS SQL DATA
BEGIN
  IF p_late THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31290, MESSAGE_TEXT = 'the server was made read-only during this call';
  END IF;
  SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only';
END
//
DROP PROCEDURE IF EXISTS tidelock_settle
//
-- Lets the line of a name move on after claims have gone: holds whose first claim has gone pass to the largest
-- of those that rode on them, and all that fit become holders. `p_free`: nobody holds, so nothing has to be counted.
-- Adds the clients of new holders to `io_bells`.
CREATE PROCEDURE tidelock_settle(
  p_name VARBINARY(512), p_now BIGINT, p_free TINYINT, INOUT io_epoch BIGINT, INOUT io_bells MEDIUMTEXT)
MODIFIES SQL DATA
BEGIN
  DECLARE v_found TINYINT DEFAULT 1;
  DECLARE v_riders, v_exclusive, v_bases INT DEFAULT 0;
  DECLARE v_used BIGINT DEFAULT 0;
  DECLARE v_place BIGINT;
  DECLARE v_weight, v_total INT UNSIGNED;
  DECLARE v_client BIGINT UNSIGNED;
  DECLARE v_owner VARBINARY(128);
  DECLARE v_more MEDIUMTEXT;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_found = 0;
  IF NOT p_free THEN
    SELECT SUM(hold = 2) INTO v_riders FROM tidelock_claims WHERE name = p_name AND hold > 0;
    WHILE v_riders > 0 DO
      SET v_found = 1;
      SELECT r.place INTO v_place FROM tidelock_claims r
        WHERE r.name = p_name AND r.hold = 2 AND NOT EXISTS (
          SELECT 1 FROM tidelock_claims b WHERE b.name = p_name AND b.hold = 1 AND b.epoch = r.epoch)
        ORDER BY r.weight = 0 DESC, r.weight DESC LIMIT 1;
      SET v_riders = v_found;
      IF v_found THEN
        UPDATE tidelock_claims SET hold = 1 WHERE name = p_name AND place = v_place;
      END IF;
    END WHILE;
    SELECT COUNT(*), COALESCE(SUM(weight = 0), 0), COALESCE(SUM(weight), 0) INTO v_bases, v_exclusive, v_used
      FROM tidelock_claims WHERE name = p_name AND hold = 1;
  END IF;
  -- Nothing fits beside an exclusive hold.
  grants: WHILE v_exclusive = 0 DO
    SET v_found = 1;
    SELECT place, weight, total, owner, client INTO v_place, v_weight, v_total, v_owner, v_client
      FROM tidelock_claims WHERE name = p_name AND hold = 0 ORDER BY place LIMIT 1;
    IF v_found = 0 OR NOT IF(v_weight = 0, v_bases = 0, v_total = 0 OR v_used + v_weight <= v_total) THEN
      LEAVE grants;
    END IF;
    SET io_epoch = GREATEST(io_epoch + 1, p_now), v_bases = v_bases + 1, v_used = v_used + v_weight,
      v_exclusive = v_weight = 0, io_bells = CONCAT(io_bells, v_client, ',');
    UPDATE tidelock_claims SET hold = 1, epoch = io_epoch, held = p_now, pushed = 1
      WHERE name = p_name AND place = v_place;
    IF v_owner <> '' THEN
      -- Those of the same owner would wait for themselves.
      SELECT GROUP_CONCAT(DISTINCT client) INTO v_more FROM tidelock_claims
        WHERE name = p_name AND hold = 0 AND owner = v_owner
          AND (v_weight = 0 OR weight > 0 AND total = v_total AND weight <= v_weight);
      IF v_more IS NOT NULL THEN
        UPDATE tidelock_claims SET hold = 2, epoch = io_epoch, held = p_now, pushed = 1
          WHERE name = p_name AND hold = 0 AND owner = v_owner
            AND (v_weight = 0 OR weight > 0 AND total = v_total AND weight <= v_weight);
        SET io_bells = CONCAT(io_bells, v_more, ',');
      END IF;
    END IF;
  END WHILE;
END
//
DROP PROCEDURE IF EXISTS tidelock_open
//
-- Locks the line of a name and lets lapsed claims go. `o_line`: 0 it is not there, 1 nobody is in it, 2 all that
-- are in it stand in tidelock_claims, 3 this claim alone is in it. `o_first`: when the first of them may lapse.
-- `o_spilt`: it stood there only now. `o_changed`: whether it has to be closed. `o_followed`: whether followers have to hear
-- of a change.
CREATE PROCEDURE tidelock_open(
  p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_claim BIGINT UNSIGNED, OUT o_line TINYINT,
  OUT o_spilt TINYINT, OUT o_now BIGINT, OUT o_epoch BIGINT, OUT o_first BIGINT, OUT o_changed TINYINT,
  OUT o_followed TINYINT, INOUT io_bells MEDIUMTEXT)
MODIFIES SQL DATA
BEGIN
  DECLARE v_found, v_many TINYINT DEFAULT 1;
  DECLARE v_client, v_claim BIGINT UNSIGNED;
  DECLARE v_day INT;
  DECLARE v_late BIGINT DEFAULT 0;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_found = 0;
  SET o_followed = 0;
  SELECT many, client, claim, lapses, epoch, day, late, followed
    INTO v_many, v_client, v_claim, o_first, o_epoch, v_day, v_late, o_followed
    FROM tidelock_lines WHERE name = p_name FOR UPDATE;
  -- Only now: whoever had the line before may have had it for long.
  SET o_now = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED), o_changed = 0, o_spilt = 0;
  IF v_late <> 0 AND v_late <= o_now THEN
    -- What was on its way then has arrived, or never will: the next one need not look.
    UPDATE tidelock_lines SET late = 0 WHERE name = p_name;
  END IF;
  IF v_found = 0 THEN
    SET o_line = 0, o_epoch = 0;
  ELSEIF v_many THEN
    SET o_line = 2;
    IF o_first <= o_now THEN
      DELETE FROM tidelock_claims WHERE name = p_name AND lapses <= o_now;
      CALL tidelock_settle(p_name, o_now, 0, o_epoch, io_bells);
      SELECT MIN(lapses) INTO o_first FROM tidelock_claims WHERE name = p_name;
      SET o_line = IF(o_first IS NULL, 1, 2), o_changed = 1;
    ELSEIF v_day <> o_now DIV 86400000000 THEN
      SET o_changed = 1;
    END IF;
  ELSEIF v_client IS NULL OR o_first <= o_now THEN
    SET o_line = 1;
  ELSEIF v_client = p_client AND v_claim = p_claim THEN
    SET o_line = 3;
  ELSE
    SET o_line = 2, o_spilt = 1;
    INSERT INTO tidelock_claims SELECT name, 1, client, claim, weight, total, owner, label, ttl, since, lapses,
      1, epoch, since, 0 FROM tidelock_lines WHERE name = p_name;
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_tell
//
-- Tells those who follow a name that its holders may have changed, once: who wants to hear more has to ask again. Adds their
-- clients to `io_bells`.
CREATE PROCEDURE tidelock_tell(p_name VARBINARY(512), p_now BIGINT, INOUT io_bells MEDIUMTEXT)
MODIFIES SQL DATA
BEGIN
  DECLARE v_clients MEDIUMTEXT;
  SELECT GROUP_CONCAT(client) INTO v_clients FROM tidelock_followers WHERE name = p_name AND changed = 0;
  IF v_clients IS NOT NULL THEN
    UPDATE tidelock_followers SET changed = 1, since = p_now WHERE name = p_name AND changed = 0;
    SET io_bells = CONCAT(io_bells, v_clients, ',');
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_close
//
-- Writes down what a line that was opened and changed has become. `p_first`: no claim lapses before; NULL if nobody is in it.
CREATE PROCEDURE tidelock_close(
  p_name VARBINARY(512), p_now BIGINT, p_epoch BIGINT, p_first BIGINT, p_followed TINYINT, INOUT io_bells MEDIUMTEXT)
MODIFIES SQL DATA
BEGIN
  UPDATE tidelock_lines SET day = p_now DIV 86400000000, epoch = p_epoch, many = p_first IS NOT NULL, client = NULL,
    lapses = COALESCE(p_first, 0), followed = 0 WHERE name = p_name;
  IF p_followed THEN
    CALL tidelock_tell(p_name, p_now, io_bells);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_ring
//
-- Wakes the connections on which these clients listen: each has the lock of its bell while it does, so the server knows
-- who it is, and nothing is written for it. Comes after the commit: who does not have that lock yet finds what there is
-- to hear once it has. If it cannot be done they find it later.
CREATE PROCEDURE tidelock_ring(p_bells MEDIUMTEXT)
READS SQL DATA
BEGIN
  DECLARE v_thread BIGINT UNSIGNED;
  DECLARE v_client VARCHAR(20);
  -- As in tidelock_listen. Names of such locks are those of the whole server, and at most 64 characters.
  DECLARE v_bell VARCHAR(64) CHARACTER SET latin1;
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET v_thread = NULL;
  WHILE p_bells <> '' DO
    SET v_client = SUBSTRING_INDEX(p_bells, ',', 1), p_bells = SUBSTRING(p_bells, CHAR_LENGTH(v_client) + 2);
    SET v_bell = CONCAT('tidelock bell ', LEFT(MD5(DATABASE()), 16), ' ', v_client);
    SET v_thread = IS_USED_LOCK(v_bell);
    IF v_thread IS NOT NULL THEN
      KILL QUERY v_thread;
    END IF;
  END WHILE;
END
//
DROP PROCEDURE IF EXISTS tidelock_sweep
//
-- Forgets some of the names that nobody used for some days. Their next epoch is larger by the clock.
CREATE PROCEDURE tidelock_sweep()
MODIFIES SQL DATA
BEGIN
  DECLARE v_found, v_many, v_followed TINYINT DEFAULT 1;
  DECLARE v_count INT DEFAULT 0;
  DECLARE v_name VARBINARY(512);
  DECLARE v_client BIGINT UNSIGNED;
  DECLARE v_lapses, v_epoch, v_late BIGINT;
  DECLARE v_bells MEDIUMTEXT DEFAULT '';
  DECLARE v_now BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  DECLARE v_days INT DEFAULT COALESCE((SELECT CAST(days AS SIGNED) FROM tidelock_settings WHERE one = 1), 1);
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_found = 0;
  -- Somebody else is at it.
  DECLARE EXIT HANDLER FOR SQLEXCEPTION ROLLBACK;
  START TRANSACTION;
  sweeping: WHILE v_count < 32 DO
    SET v_found = 1, v_count = v_count + 1;
    SELECT name, many, client, lapses, epoch, late, followed
      INTO v_name, v_many, v_client, v_lapses, v_epoch, v_late, v_followed
      FROM tidelock_lines
      WHERE day < v_now DIV 86400000000 - v_days LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF v_found = 0 THEN
      LEAVE sweeping;
    END IF;
    -- A call that may come too late has to find its mark.
    IF v_epoch < v_now AND v_late <= v_now AND IF(v_many,
      NOT EXISTS (SELECT 1 FROM tidelock_claims WHERE name = v_name AND lapses > v_now),
      v_client IS NULL OR v_lapses <= v_now)
    THEN
      DELETE FROM tidelock_claims WHERE name = v_name;
      DELETE FROM tidelock_lines WHERE name = v_name;
      IF v_followed THEN
        -- Those who are still there ask again, and the line is made anew.
        CALL tidelock_tell(v_name, v_now, v_bells);
      END IF;
    ELSE
      UPDATE tidelock_lines SET day = v_now DIV 86400000000 WHERE name = v_name;
    END IF;
  END WHILE;
  DELETE FROM tidelock_evictions WHERE since < v_now - 3600000000 LIMIT 32;
  DELETE FROM tidelock_gone WHERE since < v_now - 3600000000 LIMIT 32;
  -- Clients that are still there ask again within seconds.
  DELETE FROM tidelock_followers WHERE changed = 1 AND since < v_now - 3600000000 LIMIT 32;
  COMMIT;
  IF v_bells <> '' THEN
    CALL tidelock_ring(v_bells);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_together
//
-- Enters and leaves of one client that go together, with one commit: those that need no rule. A free line takes a claim, and
-- a claim that is alone in its line leaves it. All others are called one by one. Each of `p_steps` is an array: its number, its
-- name, its claim, and for an enter weight, total, owner, label and ttl; names and texts in hexadecimal digits, sorted by
-- name. Answers 'number epoch;' for each that was done; of a leave the epoch does not matter.
-- Never waits for a row: one that somebody else has locked is not done. New rows are made in the order of names. So no two
-- calls wait for each other.
CREATE PROCEDURE tidelock_together(p_client BIGINT UNSIGNED, p_steps LONGTEXT CHARACTER SET latin1)
MODIFIES SQL DATA
BEGIN
  DECLARE v_done, v_numbers, v_new, v_made MEDIUMTEXT CHARACTER SET latin1;
  DECLARE v_now BIGINT;
  DECLARE v_count INT;
  DECLARE v_all TINYINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(0);
  END IF;
  -- Earlier than the change: then leases end early rather than late.
  SET v_now = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  START TRANSACTION;
  SELECT GROUP_CONCAT(s.number, ' ', GREATEST(l.epoch + 1, v_now) SEPARATOR ';'), GROUP_CONCAT(s.number), COUNT(*)
    INTO v_done, v_numbers, v_count
    FROM JSON_TABLE(p_steps, '$[*]' COLUMNS (
      number INT PATH '$[0]', name VARCHAR(1024) CHARACTER SET latin1 PATH '$[1]', claim BIGINT UNSIGNED PATH '$[2]',
      ttl BIGINT PATH '$[7]')) s
    STRAIGHT_JOIN tidelock_lines l ON l.name = UNHEX(s.name)
    WHERE l.many = 0 AND l.followed = 0 AND IF(s.ttl IS NULL,
      l.client = p_client AND l.claim = s.claim AND l.lapses > v_now,
      l.late = 0 AND (l.client IS NULL OR l.lapses <= v_now))
    FOR UPDATE SKIP LOCKED;
  -- Nothing else in the text is a bracket.
  SET v_all = v_count = LENGTH(p_steps) - LENGTH(REPLACE(p_steps, '[', '')) - 1;
  IF v_count > 0 THEN
    -- All of these are locked, and as they were, so each of these rows is a duplicate. A join that updates would write all of
    -- them to a temporary table first. A leave changes only the client: a row of the same length is changed in its place.
    INSERT INTO tidelock_lines (name, day, epoch, client, claim, weight, total, owner, label, ttl, since, lapses)
      SELECT UNHEX(s.name), v_now DIV 86400000000, v_now, IF(s.ttl IS NULL, NULL, p_client), s.claim, COALESCE(s.weight, 0),
        COALESCE(s.total, 0), COALESCE(UNHEX(s.owner), ''), COALESCE(UNHEX(s.label), ''), COALESCE(s.ttl, 0), v_now,
        v_now + COALESCE(s.ttl, 0)
      FROM JSON_TABLE(p_steps, '$[*]' COLUMNS (
        number INT PATH '$[0]', name VARCHAR(1024) CHARACTER SET latin1 PATH '$[1]', claim BIGINT UNSIGNED PATH '$[2]',
        weight INT UNSIGNED PATH '$[3]', total INT UNSIGNED PATH '$[4]', owner VARCHAR(256) CHARACTER SET latin1 PATH '$[5]',
        label VARCHAR(2560) CHARACTER SET latin1 PATH '$[6]', ttl BIGINT PATH '$[7]')) s
      WHERE v_all OR FIND_IN_SET(s.number, v_numbers)
      ON DUPLICATE KEY UPDATE
        client = VALUES(client),
        epoch = IF(VALUES(client) IS NULL, tidelock_lines.epoch, GREATEST(tidelock_lines.epoch + 1, v_now)),
        day = IF(VALUES(client) IS NULL, tidelock_lines.day, VALUES(day)),
        claim = VALUES(claim),
        weight = IF(VALUES(client) IS NULL, tidelock_lines.weight, VALUES(weight)),
        total = IF(VALUES(client) IS NULL, tidelock_lines.total, VALUES(total)),
        owner = IF(VALUES(client) IS NULL, tidelock_lines.owner, VALUES(owner)),
        label = IF(VALUES(client) IS NULL, tidelock_lines.label, VALUES(label)),
        ttl = IF(VALUES(client) IS NULL, tidelock_lines.ttl, VALUES(ttl)),
        since = IF(VALUES(client) IS NULL, tidelock_lines.since, VALUES(since)),
        lapses = IF(VALUES(client) IS NULL, tidelock_lines.lapses, VALUES(lapses));
  END IF;
  IF NOT v_all THEN
    -- Lines that are not there yet.
    SELECT GROUP_CONCAT(s.number) INTO v_new
      FROM JSON_TABLE(p_steps, '$[*]' COLUMNS (
        number INT PATH '$[0]', name VARCHAR(1024) CHARACTER SET latin1 PATH '$[1]', ttl BIGINT PATH '$[7]')) s
      WHERE s.ttl IS NOT NULL AND NOT FIND_IN_SET(s.number, COALESCE(v_numbers, ''))
        AND NOT EXISTS (SELECT 1 FROM tidelock_lines l WHERE l.name = UNHEX(s.name));
  END IF;
  IF v_new IS NOT NULL THEN
    INSERT INTO tidelock_lines (name, day, epoch, client, claim, weight, total, owner, label, ttl, since, lapses)
      SELECT UNHEX(s.name), v_now DIV 86400000000, v_now, p_client, s.claim, s.weight, s.total, UNHEX(s.owner), UNHEX(s.label),
        s.ttl, v_now, v_now + s.ttl
      FROM JSON_TABLE(p_steps, '$[*]' COLUMNS (
        number INT PATH '$[0]', name VARCHAR(1024) CHARACTER SET latin1 PATH '$[1]', claim BIGINT UNSIGNED PATH '$[2]',
        weight INT UNSIGNED PATH '$[3]', total INT UNSIGNED PATH '$[4]', owner VARCHAR(256) CHARACTER SET latin1 PATH '$[5]',
        label VARCHAR(2560) CHARACTER SET latin1 PATH '$[6]', ttl BIGINT PATH '$[7]')) s
      WHERE FIND_IN_SET(s.number, v_new)
      ON DUPLICATE KEY UPDATE many = many;
    -- Somebody else may have made some meanwhile.
    SELECT GROUP_CONCAT(s.number, ' ', v_now SEPARATOR ';') INTO v_made
      FROM JSON_TABLE(p_steps, '$[*]' COLUMNS (
        number INT PATH '$[0]', name VARCHAR(1024) CHARACTER SET latin1 PATH '$[1]', claim BIGINT UNSIGNED PATH '$[2]')) s
      STRAIGHT_JOIN tidelock_lines l ON l.name = UNHEX(s.name)
      WHERE FIND_IN_SET(s.number, v_new) AND l.many = 0 AND l.late = 0 AND l.client = p_client AND l.claim = s.claim
        AND l.epoch = v_now;
    SET v_done = CONCAT_WS(';', v_done, v_made);
  END IF;
  IF v_done IS NOT NULL THEN
    COMMIT;
  ELSE
    ROLLBACK;
  END IF;
  IF v_now % 8 = 0 THEN
    CALL tidelock_sweep();
  END IF;
  SELECT COALESCE(v_done, '');
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_enter_line
//
-- Enters a line that somebody is in, or that is not there yet.
CREATE PROCEDURE tidelock_enter_line(
  p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_claim BIGINT UNSIGNED, p_try TINYINT, p_weight INT UNSIGNED,
  p_total INT UNSIGNED, p_owner VARBINARY(128), p_label VARBINARY(1280), p_ttl BIGINT)
MODIFIES SQL DATA
main: BEGIN
  DECLARE v_line, v_spilt, v_changed, v_followed, v_added, v_hold TINYINT DEFAULT 0;
  DECLARE v_found, v_fits TINYINT DEFAULT 1;
  DECLARE v_made, v_gone INT;
  DECLARE v_now, v_epoch, v_first, v_place, v_next, v_used, v_a, v_b, v_c BIGINT DEFAULT 0;
  DECLARE v_weight, v_total INT UNSIGNED;
  DECLARE v_bases, v_exclusive, v_held, v_waiting, v_kin INT DEFAULT 0;
  DECLARE v_lapse BIGINT;
  DECLARE v_kind CHAR(1) DEFAULT '';
  DECLARE v_bells MEDIUMTEXT DEFAULT '';
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_found = 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  START TRANSACTION;
  CALL tidelock_open(p_name, p_client, p_claim, v_line, v_spilt, v_now, v_epoch, v_first, v_changed, v_followed,
    v_bells);
  IF v_line = 0 THEN
    SET v_epoch = v_now;
    INSERT INTO tidelock_lines (name, day, epoch, client, claim, weight, total, owner, label, ttl, since, lapses)
      VALUES (p_name, v_now DIV 86400000000, v_now, p_client, p_claim, p_weight, p_total, p_owner, p_label, p_ttl,
        v_now, v_now + p_ttl)
      ON DUPLICATE KEY UPDATE many = many;
    -- Not from ROW_COUNT(): on connections with CLIENT_FOUND_ROWS it is 1 for a row that was there as well.
    SELECT COUNT(*) INTO v_made FROM tidelock_lines WHERE name = p_name AND many = 0 AND late = 0
      AND client = p_client AND claim = p_claim AND epoch = v_now;
    IF v_made THEN
      COMMIT;
      SELECT 'H', v_epoch, p_ttl, 0;
      LEAVE main;
    END IF;
    -- Somebody else made it meanwhile.
    CALL tidelock_open(p_name, p_client, p_claim, v_line, v_spilt, v_now, v_epoch, v_first, v_changed, v_followed,
    v_bells);
  END IF;
  -- Only now that the line is locked: a mark that was written while this waited for it is seen.
  SELECT COUNT(*) INTO v_gone FROM tidelock_gone WHERE client = p_client AND claim = p_claim;
  IF v_gone THEN
    ROLLBACK;
    SELECT 'B', 0, 0, 0;
    LEAVE main;
  END IF;
  IF v_line = 3 THEN
    -- It is in line: renewed.
    UPDATE tidelock_lines SET lapses = v_now + ttl, day = v_now DIV 86400000000 WHERE name = p_name;
    COMMIT;
    SELECT 'H', epoch, ttl, 0 FROM tidelock_lines WHERE name = p_name;
    LEAVE main;
  END IF;
  IF v_line = 1 THEN
    SET v_epoch = GREATEST(v_epoch + 1, v_now);
    UPDATE tidelock_lines SET day = v_now DIV 86400000000, epoch = v_epoch, many = 0, client = p_client,
      claim = p_claim, weight = p_weight, total = p_total, owner = p_owner, label = p_label, ttl = p_ttl,
      since = v_now, lapses = v_now + p_ttl, followed = 0 WHERE name = p_name;
    IF v_followed THEN
      CALL tidelock_tell(p_name, v_now, v_bells);
    END IF;
    COMMIT;
    IF v_bells <> '' THEN
      CALL tidelock_ring(v_bells);
    END IF;
    SELECT 'H', v_epoch, p_ttl, 0;
    LEAVE main;
  END IF;
  -- All that has to be known of the line, with one look at it.
  SELECT SUM(hold > 0), SUM(hold = 0), SUM(hold = 1), SUM(hold = 1 AND weight = 0), SUM(IF(hold = 1, weight, 0)),
      MAX(place) + 1, MIN(IF(hold, lapses, NULL)) - v_now, MAX(IF(client = p_client AND claim = p_claim, place, 0)),
      MAX(IF(weight > 0, total, NULL)), MAX(owner = p_owner)
    INTO v_held, v_waiting, v_bases, v_exclusive, v_used, v_next, v_lapse, v_place, v_total, v_kin
    FROM tidelock_claims WHERE name = p_name;
  IF v_place THEN
    -- It is in line: renewed.
    UPDATE tidelock_claims SET lapses = v_now + ttl, pushed = 0 WHERE name = p_name AND place = v_place;
    SELECT hold, epoch, ttl INTO v_hold, v_a, v_b FROM tidelock_claims WHERE name = p_name AND place = v_place;
    SET v_changed = 1;
    IF v_hold THEN
      SET v_kind = 'H', v_c = v_waiting;
    ELSE
      SELECT COUNT(*) INTO v_a FROM tidelock_claims WHERE name = p_name AND hold = 0 AND place < v_place;
      SET v_kind = 'W', v_a = v_a + v_held;
    END IF;
  ELSE
    SET v_place = v_next;
    IF p_weight > 0 AND v_total <> p_total THEN
      SET v_kind = 'C', v_a = v_total;
    ELSEIF p_owner <> '' AND v_kin THEN
      SET v_found = 1;
      SELECT epoch INTO v_a FROM tidelock_claims WHERE name = p_name AND hold > 0 AND owner = p_owner
        AND (weight = 0 OR p_weight > 0 AND total = p_total AND p_weight <= weight) LIMIT 1;
      IF v_found THEN
        SET v_kind = 'H', v_hold = 2, v_b = p_ttl, v_c = v_waiting;
      ELSE
        SET v_found = 1;
        SELECT weight, total INTO v_weight, v_total FROM tidelock_claims
          WHERE name = p_name AND hold > 0 AND owner = p_owner LIMIT 1;
        IF v_found THEN
          SET v_kind = 'U', v_a = v_weight, v_b = v_total;
        END IF;
      END IF;
    END IF;
    IF v_kind = '' THEN
      SET v_fits = v_waiting = 0 AND v_exclusive = 0
        AND IF(p_weight = 0, v_bases = 0, p_total = 0 OR v_used + p_weight <= p_total);
      IF v_fits THEN
        SET v_epoch = GREATEST(v_epoch + 1, v_now), v_kind = 'H', v_hold = 1, v_a = v_epoch, v_b = p_ttl, v_c = 0;
      ELSEIF p_try THEN
        SET v_kind = 'B';
      ELSE
        SET v_kind = 'W', v_a = v_held + v_waiting;
      END IF;
    END IF;
    IF v_kind IN ('H', 'W') THEN
      -- Where the row of the name says the same as before it is not written.
      SET v_changed = v_changed OR v_spilt OR v_hold = 1 OR v_hold AND v_followed OR v_now + p_ttl < v_first,
        v_first = LEAST(v_first, v_now + p_ttl), v_added = 1;
      INSERT INTO tidelock_claims VALUES (p_name, v_place, p_client, p_claim, p_weight, p_total, p_owner, p_label,
        p_ttl, v_now, v_now + p_ttl, v_hold, IF(v_hold, v_a, 0), IF(v_hold, v_now, 0), 0);
    END IF;
  END IF;
  IF v_kind = 'W' THEN
    -- Only the first that waits is told when to look again: one question, not a herd.
    SET v_b = IF(v_a = v_held, v_lapse, -1);
  END IF;
  IF v_changed THEN
    CALL tidelock_close(p_name, v_now, v_epoch, v_first, v_followed, v_bells);
  END IF;
  IF v_changed OR v_added THEN
    COMMIT;
  ELSE
    ROLLBACK;
  END IF;
  IF v_bells <> '' THEN
    CALL tidelock_ring(v_bells);
  END IF;
  SELECT v_kind, v_a, v_b, v_c;
END
//
DROP PROCEDURE IF EXISTS tidelock_enter
//
-- Takes a place. Answers 'H', epoch, ttl, waiting: it holds | 'W', ahead, lapse in or -1: it waits | 'B': busy, or too late |
-- 'C', capacity: another capacity is agreed on | 'U', weight, total: its owner holds less than that.
CREATE PROCEDURE tidelock_enter(
  p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_claim BIGINT UNSIGNED, p_try TINYINT, p_weight INT UNSIGNED,
  p_total INT UNSIGNED, p_owner VARBINARY(128), p_label VARBINARY(1280), p_ttl BIGINT)
MODIFIES SQL DATA
main: BEGIN
  DECLARE v_taken INT;
  -- Earlier than the change: then the lease ends early rather than late.
  DECLARE v_now BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(0);
  END IF;
  IF p_try THEN
    -- A mutex that is taken, the commonest case of a try: nothing is written, and nothing locked.
    SELECT COUNT(*) INTO v_taken FROM tidelock_lines
      WHERE name = p_name AND many = 0 AND client IS NOT NULL AND lapses > v_now AND (weight = 0 OR p_weight = 0)
        AND (client <> p_client OR claim <> p_claim) AND (p_owner = '' OR owner <> p_owner);
    IF v_taken THEN
      SELECT 'B', 0, 0, 0;
      LEAVE main;
    END IF;
  END IF;
  UPDATE tidelock_lines SET epoch = LAST_INSERT_ID(GREATEST(epoch + 1, v_now)), day = v_now DIV 86400000000,
      client = p_client, claim = p_claim, weight = p_weight, total = p_total, owner = p_owner, label = p_label,
      ttl = p_ttl, since = v_now, lapses = v_now + p_ttl
    WHERE name = p_name AND many = 0 AND late = 0 AND followed = 0 AND (client IS NULL OR lapses <= v_now);
  -- The epoch of a row that is found always changes, so this is the same with CLIENT_FOUND_ROWS.
  IF ROW_COUNT() = 1 THEN
    SELECT 'H', LAST_INSERT_ID(), p_ttl, 0;
  ELSE
    CALL tidelock_enter_line(p_name, p_client, p_claim, p_try, p_weight, p_total, p_owner, p_label, p_ttl);
  END IF;
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_renew
//
-- Renews claims. Each is 32 hexadecimal digits of client and claim, three digits of the length of its name, and its
-- name; sorted by name, so that no two calls wait for each other. Answers for each 'H epoch ttl waiting;',
-- 'W ahead lapse_in;' or 'G;', in this order.
CREATE PROCEDURE tidelock_renew(p_claims MEDIUMBLOB)
MODIFIES SQL DATA
BEGIN
  DECLARE v_at, v_length INT DEFAULT 1;
  DECLARE v_line, v_spilt, v_changed, v_followed, v_hold, v_many TINYINT DEFAULT 0;
  DECLARE v_found TINYINT DEFAULT 1;
  DECLARE v_client, v_claim, v_seen_client, v_seen_claim BIGINT UNSIGNED;
  DECLARE v_now, v_epoch, v_first, v_place, v_lapses, v_ttl, v_of, v_waiting, v_held BIGINT;
  DECLARE v_name VARBINARY(512);
  DECLARE v_answers, v_bells MEDIUMTEXT DEFAULT '';
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_found = 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(0);
  END IF;
  START TRANSACTION;
  WHILE v_at <= LENGTH(p_claims) DO
    SET v_client = CAST(CONV(SUBSTRING(p_claims, v_at, 16), 16, 10) AS UNSIGNED),
      v_claim = CAST(CONV(SUBSTRING(p_claims, v_at + 16, 16), 16, 10) AS UNSIGNED),
      v_length = CAST(SUBSTRING(p_claims, v_at + 32, 3) AS UNSIGNED),
      v_name = SUBSTRING(p_claims, v_at + 35, v_length), v_at = v_at + 35 + v_length, v_found = 1;
    SELECT many, client, claim, lapses, ttl, epoch
      INTO v_many, v_seen_client, v_seen_claim, v_lapses, v_ttl, v_epoch
      FROM tidelock_lines WHERE name = v_name FOR UPDATE;
    IF v_found = 0 THEN
      SET v_answers = CONCAT(v_answers, 'G;');
    ELSEIF v_many = 0 THEN
      SET v_now = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
      IF v_seen_client = v_client AND v_seen_claim = v_claim AND v_lapses > v_now THEN
        UPDATE tidelock_lines SET lapses = v_now + v_ttl, day = v_now DIV 86400000000 WHERE name = v_name;
        SET v_answers = CONCAT(v_answers, 'H ', v_epoch, ' ', v_ttl, ' 0;');
      ELSE
        SET v_answers = CONCAT(v_answers, 'G;');
      END IF;
    ELSE
      CALL tidelock_open(v_name, v_client, v_claim, v_line, v_spilt, v_now, v_epoch, v_first, v_changed, v_followed,
    v_bells);
      SET v_found = 1;
      SELECT place, hold, epoch, ttl INTO v_place, v_hold, v_of, v_ttl FROM tidelock_claims
        WHERE client = v_client AND claim = v_claim AND name = v_name;
      IF v_found = 0 THEN
        SET v_answers = CONCAT(v_answers, 'G;');
      ELSE
        UPDATE tidelock_claims SET lapses = v_now + v_ttl, pushed = 0 WHERE name = v_name AND place = v_place;
        IF v_hold THEN
          SELECT COUNT(*) INTO v_waiting FROM tidelock_claims WHERE name = v_name AND hold = 0;
          SET v_answers = CONCAT(v_answers, 'H ', v_of, ' ', v_ttl, ' ', v_waiting, ';');
        ELSE
          SELECT SUM(hold > 0), SUM(hold = 0 AND place < v_place), MIN(IF(hold, lapses, NULL)) - v_now
            INTO v_held, v_waiting, v_lapses FROM tidelock_claims WHERE name = v_name;
          SET v_answers = CONCAT(v_answers, 'W ', v_held + v_waiting, ' ', IF(v_waiting = 0, v_lapses, -1), ';');
        END IF;
      END IF;
      IF v_changed THEN
        CALL tidelock_close(v_name, v_now, v_epoch, v_first, v_followed, v_bells);
      END IF;
    END IF;
  END WHILE;
  COMMIT;
  IF v_bells <> '' THEN
    CALL tidelock_ring(v_bells);
  END IF;
  SELECT v_answers;
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_leave_line
//
-- Leaves a line in which there may be others. `o_left`: whether the claim was in it.
CREATE PROCEDURE tidelock_leave_line(
  p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_claim BIGINT UNSIGNED, p_reason VARBINARY(1024), OUT o_left TINYINT)
MODIFIES SQL DATA
BEGIN
  DECLARE v_line, v_spilt, v_changed, v_followed, v_hold TINYINT DEFAULT 0;
  DECLARE v_found TINYINT DEFAULT 1;
  DECLARE v_now, v_epoch, v_first, v_place BIGINT DEFAULT 0;
  DECLARE v_weight INT UNSIGNED;
  DECLARE v_rung INT;
  DECLARE v_owner VARBINARY(128);
  DECLARE v_bells MEDIUMTEXT DEFAULT '';
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_found = 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  START TRANSACTION;
  CALL tidelock_open(p_name, p_client, p_claim, v_line, v_spilt, v_now, v_epoch, v_first, v_changed, v_followed,
    v_bells);
  IF v_line = 2 THEN
    SELECT place, hold, weight, owner INTO v_place, v_hold, v_weight, v_owner FROM tidelock_claims
      WHERE client = p_client AND claim = p_claim AND name = p_name;
    SET v_line = IF(v_found, 3, 2);
    IF v_found THEN
      DELETE FROM tidelock_claims WHERE name = p_name AND place = v_place;
      -- Nobody holds beside an exclusive claim without an owner.
      SET v_rung = LENGTH(v_bells);
      CALL tidelock_settle(p_name, v_now, v_hold = 1 AND v_weight = 0 AND v_owner = '', v_epoch, v_bells);
      -- While there are others the first of them lapses at that time or later.
      IF LENGTH(v_bells) = v_rung AND NOT EXISTS (SELECT 1 FROM tidelock_claims WHERE name = p_name) THEN
        SET v_first = NULL;
      END IF;
    END IF;
  ELSEIF v_line = 3 THEN
    SET v_first = NULL;
  END IF;
  SET o_left = v_line = 3;
  IF v_line = 3 THEN
    SET v_changed = 1;
    IF p_reason IS NOT NULL THEN
      REPLACE INTO tidelock_evictions VALUES (p_client, p_claim, p_name, p_reason, v_now);
      SET v_bells = CONCAT(v_bells, p_client, ',');
    END IF;
  END IF;
  IF v_changed THEN
    CALL tidelock_close(p_name, v_now, v_epoch, v_first, v_followed, v_bells);
    COMMIT;
  ELSE
    ROLLBACK;
  END IF;
  IF v_bells <> '' THEN
    CALL tidelock_ring(v_bells);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_leave
//
-- Gives a hold or a place back, or takes it away for a reason that its client hears. Answers 1 if the claim was in line,
-- 0 if it was not: it had lapsed, or was left or put out before.
CREATE PROCEDURE tidelock_leave(
  p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_claim BIGINT UNSIGNED, p_reason VARBINARY(1024))
MODIFIES SQL DATA
BEGIN
  DECLARE v_left TINYINT DEFAULT 0;
  DECLARE v_now BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(0);
  END IF;
  IF p_reason IS NULL THEN
    UPDATE tidelock_lines SET client = NULL
      WHERE name = p_name AND many = 0 AND client = p_client AND claim = p_claim AND lapses > v_now AND followed = 0;
    -- The client of a row that is found always changes, so this is the same with CLIENT_FOUND_ROWS.
    SET v_left = ROW_COUNT() = 1;
  END IF;
  IF NOT v_left THEN
    CALL tidelock_leave_line(p_name, p_client, p_claim, p_reason, v_left);
  END IF;
  IF p_claim % 16 = 0 THEN
    CALL tidelock_sweep();
  END IF;
  SELECT v_left;
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_release
//
-- The same for what is given back, which nearly always is alone in its line. Then it answers no rows, which would cost as much
-- as the rest. Else it answers what tidelock_leave does.
CREATE PROCEDURE tidelock_release(p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_claim BIGINT UNSIGNED)
MODIFIES SQL DATA
BEGIN
  DECLARE v_left TINYINT;
  DECLARE v_now BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(0);
  END IF;
  UPDATE tidelock_lines SET client = NULL
    WHERE name = p_name AND many = 0 AND client = p_client AND claim = p_claim AND lapses > v_now AND followed = 0;
  -- The client of a row that is found always changes, so this is the same with CLIENT_FOUND_ROWS.
  SET v_left = ROW_COUNT() = 1;
  IF NOT v_left OR p_claim % 16 = 0 THEN
    IF NOT v_left THEN
      CALL tidelock_leave_line(p_name, p_client, p_claim, NULL, v_left);
    END IF;
    IF p_claim % 16 = 0 THEN
      CALL tidelock_sweep();
    END IF;
    SELECT v_left;
  END IF;
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_shut_out
//
-- Sees to it that a claim which is about to be left is not entered any more: a call for it was not answered, and may
-- arrive later.
CREATE PROCEDURE tidelock_shut_out(p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_claim BIGINT UNSIGNED)
MODIFIES SQL DATA
BEGIN
  DECLARE v_now BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(0);
  END IF;
  START TRANSACTION;
  -- Whoever enters has the row when it looks for the mark, and so has this.
  INSERT INTO tidelock_lines (name, day, epoch, late)
    VALUES (p_name, v_now DIV 86400000000, 0, v_now + 3600000000)
    ON DUPLICATE KEY UPDATE late = GREATEST(late, v_now + 3600000000);
  INSERT INTO tidelock_gone VALUES (p_client, p_claim, v_now) ON DUPLICATE KEY UPDATE since = since;
  COMMIT;
  CALL tidelock_sweep();
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_look
//
-- What is in line of a name, or of all: the time, then claims, those of one name together, holders first, in order.
CREATE PROCEDURE tidelock_look(p_name VARBINARY(512))
READS SQL DATA
BEGIN
  DECLARE v_now BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  IF p_name IS NULL THEN
    SELECT v_now, name, epoch, client, claim, weight, total, owner, label, ttl, since, lapses, epoch AS granted,
        0 AS waits, 0 AS place
      FROM tidelock_lines WHERE many = 0 AND client IS NOT NULL AND lapses > v_now
    UNION ALL SELECT v_now, c.name, l.epoch, c.client, c.claim, c.weight, c.total, c.owner, c.label, c.ttl,
        IF(c.hold, c.held, c.since), c.lapses, c.epoch, c.hold = 0, c.place
      FROM tidelock_claims c JOIN tidelock_lines l ON l.name = c.name WHERE l.many = 1 AND c.lapses > v_now
    ORDER BY name, waits, place;
  ELSE
    SELECT v_now, name, epoch, client, claim, weight, total, owner, label, ttl, since, lapses, epoch AS granted,
        0 AS waits, 0 AS place
      FROM tidelock_lines WHERE name = p_name AND many = 0 AND client IS NOT NULL AND lapses > v_now
    UNION ALL SELECT v_now, c.name, l.epoch, c.client, c.claim, c.weight, c.total, c.owner, c.label, c.ttl,
        IF(c.hold, c.held, c.since), c.lapses, c.epoch, c.hold = 0, c.place
      FROM tidelock_claims c JOIN tidelock_lines l ON l.name = c.name
      WHERE l.name = p_name AND l.many = 1 AND c.lapses > v_now
    ORDER BY name, waits, place;
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_attend
//
-- Does nothing. Clients that were built for the first revision call it and still may be running.
CREATE PROCEDURE tidelock_attend(p_client BIGINT UNSIGNED)
READS SQL DATA
BEGIN
  DO 0;
END
//
DROP PROCEDURE IF EXISTS tidelock_listen
//
-- Waits until there is something for a client to hear that is not among the claims it has `known`, or for so many
-- seconds. Answers 'G', claim, name, epoch, ttl, waiting, '' for each claim that became a holder and was not renewed since,
-- known or not, 'E', claim, name, 0, 0, 0, reason for each that was put out, and 'F', number, name, 0, 0, 0, '' for each name
-- that it follows and that changed. Of those it has known numbers with an f before them.
CREATE PROCEDURE tidelock_listen(p_client BIGINT UNSIGNED, p_seconds DECIMAL(9, 3), p_known MEDIUMTEXT)
READS SQL DATA
BEGIN
  DECLARE v_news, v_has_bell TINYINT DEFAULT 0;
  DECLARE v_until BIGINT;
  DECLARE v_bell VARCHAR(64) CHARACTER SET latin1
    DEFAULT CONCAT('tidelock bell ', LEFT(MD5(DATABASE()), 16), ' ', p_client);
  DECLARE v_bed VARCHAR(64) CHARACTER SET latin1 DEFAULT CONCAT('tidelock sleeps in ', LEFT(MD5(DATABASE()), 16));
  -- Longer and longer: a bell that rings at the very end of the look before a sleep is forgotten with that statement.
  DECLARE v_nap DECIMAL(9, 3) DEFAULT LEAST(0.05, p_seconds);
  -- Before the first look: a client that commits news later finds who has the bell. A call that was ended by it still has it.
  SET v_has_bell = IS_USED_LOCK(v_bell) <=> CONNECTION_ID() OR COALESCE(GET_LOCK(v_bell, 0), 0);
  IF NOT v_has_bell THEN
    -- The client listened on another connection, which has gone, and the server has not noticed it yet.
    CALL tidelock_ring(CONCAT(p_client, ','));
    SET v_has_bell = COALESCE(GET_LOCK(v_bell, 1), 0);
    IF NOT v_has_bell THEN
      -- Nobody can wake it: it asks instead.
      SET p_seconds = LEAST(p_seconds, 0.1);
    END IF;
  END IF;
  naps: LOOP
    -- A statement of its own, because a condition would wait for locks.
    SELECT EXISTS (SELECT 1 FROM tidelock_claims WHERE client = p_client AND pushed = 1
        AND (p_known = '' OR NOT FIND_IN_SET(claim, p_known)))
      OR EXISTS (SELECT 1 FROM tidelock_evictions WHERE client = p_client)
      OR EXISTS (SELECT 1 FROM tidelock_followers WHERE client = p_client AND changed = 1
        AND (p_known = '' OR NOT FIND_IN_SET(CONCAT('f', number), p_known))) INTO v_news;
    IF v_news THEN
      LEAVE naps;
    END IF;
    SET v_until = CAST((UNIX_TIMESTAMP(SYSDATE(6)) + v_nap) * 1000000 AS SIGNED);
    -- All that sleep share one mutex of the server, and whoever wakes one waits for it. So one listener sleeps, and the
    -- others wait for a lock that it has.
    DO GET_LOCK(v_bed, v_nap);
    IF IS_USED_LOCK(v_bed) = CONNECTION_ID() THEN
      DO SLEEP(GREATEST(0, (v_until - CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)) / 1000000));
      DO RELEASE_LOCK(v_bed);
    END IF;
    IF v_nap >= p_seconds OR CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) < v_until THEN
      LEAVE naps;
    END IF;
    SET v_nap = LEAST(v_nap * 20, p_seconds);
  END LOOP;
  IF v_has_bell THEN
    DO RELEASE_LOCK(v_bell);
  END IF;
  SELECT 'G', c.claim, c.name, c.epoch, c.ttl,
      (SELECT COUNT(*) FROM tidelock_claims w WHERE w.name = c.name AND w.hold = 0), ''
    FROM tidelock_claims c WHERE c.client = p_client AND c.pushed = 1
  UNION ALL SELECT 'E', claim, name, 0, 0, 0, reason FROM tidelock_evictions WHERE client = p_client
  UNION ALL SELECT 'F', number, name, 0, 0, 0, '' FROM tidelock_followers WHERE client = p_client AND changed = 1;
  -- After the look: what was committed on a server that had been demoted by then is not told.
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(0);
  END IF;
END
//
DROP PROCEDURE IF EXISTS tidelock_heard
//
-- A client has heard that a claim was put out.
CREATE PROCEDURE tidelock_heard(p_client BIGINT UNSIGNED, p_claim BIGINT UNSIGNED)
MODIFIES SQL DATA
BEGIN
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(0);
  END IF;
  DELETE FROM tidelock_evictions WHERE client = p_client AND claim = p_claim;
END
//
DROP PROCEDURE IF EXISTS tidelock_follow
//
-- From now on a client hears of the next change of holders of a name. Lines that nobody follows do nothing for this: whoever
-- changes one asks only whether its row says that it is followed.
CREATE PROCEDURE tidelock_follow(p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_number BIGINT UNSIGNED)
MODIFIES SQL DATA
BEGIN
  DECLARE v_now BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(0);
  END IF;
  START TRANSACTION;
  INSERT INTO tidelock_lines (name, day, epoch, followed) VALUES (p_name, v_now DIV 86400000000, 0, 1)
    ON DUPLICATE KEY UPDATE followed = 1;
  INSERT INTO tidelock_followers VALUES (p_name, p_client, p_number, 0, v_now)
    -- A call that comes late does not undo a later one.
    ON DUPLICATE KEY UPDATE changed = IF(p_number < number, changed, 0), since = v_now, number = GREATEST(number, p_number);
  COMMIT;
END
//
DROP PROCEDURE IF EXISTS tidelock_kept
//
-- What is kept of names, for people: bytes, about how many names, for how many days, and for how many the one was not used
-- that was not used for longest.
CREATE PROCEDURE tidelock_kept()
READS SQL DATA
BEGIN
  SELECT CAST(COALESCE(SUM(DATA_LENGTH + INDEX_LENGTH), 0) AS SIGNED),
      CAST(COALESCE(MAX(IF(TABLE_NAME = 'tidelock_lines', TABLE_ROWS, 0)), 0) AS SIGNED),
      COALESCE((SELECT days FROM tidelock_settings WHERE one = 1), 1),
      CAST(COALESCE(UNIX_TIMESTAMP(SYSDATE()) DIV 86400 - (SELECT MIN(day) FROM tidelock_lines), 0) AS SIGNED)
    FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ('tidelock_lines', 'tidelock_claims');
END
//
DROP PROCEDURE IF EXISTS tidelock_version
//
-- Comes last: a client that finds it finds all the others. Answers the version of what calls mean, which clients and
-- procedures must agree on, and the revision, which is at least what a client needs.
CREATE PROCEDURE tidelock_version()
READS SQL DATA
BEGIN
  SELECT 1, 5;
END
//
