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
