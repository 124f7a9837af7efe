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
