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
