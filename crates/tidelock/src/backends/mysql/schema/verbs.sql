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
  SELECT 1, 7;
END
//
