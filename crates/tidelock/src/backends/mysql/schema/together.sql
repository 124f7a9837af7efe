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
    STRAIGHT_JOIN tidelock_lines l FORCE INDEX (PRIMARY) ON l.name = UNHEX(s.name)
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
      LEFT JOIN tidelock_lines l FORCE INDEX (PRIMARY) ON l.name = UNHEX(s.name)
      WHERE s.ttl IS NOT NULL AND l.name IS NULL AND NOT FIND_IN_SET(s.number, COALESCE(v_numbers, ''));
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
      STRAIGHT_JOIN tidelock_lines l FORCE INDEX (PRIMARY) ON l.name = UNHEX(s.name)
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
DROP PROCEDURE IF EXISTS tidelock_renew_together
//
-- Renewals of one client that go together, with one commit: of claims in lines that move for no other reason. Nobody in them has
-- lapsed, so nothing changes but when these lapse. All others are left to tidelock_renew, also those that are not found: it says
-- that they are gone. Each of `p_claims` is an array: its number, its name in hexadecimal digits, its claim. Answers for each that
-- was renewed its number and what tidelock_renew answers.
-- Never waits for a row: one that somebody else has locked is not done. It commits before tidelock_renew is called for the rest,
-- which does wait: two calls that each have lines and wait for those of the other would be a deadlock.
CREATE PROCEDURE tidelock_renew_together(p_client BIGINT UNSIGNED, p_claims LONGTEXT CHARACTER SET latin1)
MODIFIES SQL DATA
BEGIN
  DECLARE v_done, v_alone, v_longer, v_claims, v_names MEDIUMTEXT CHARACTER SET latin1;
  DECLARE v_now BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(0);
  END IF;
  -- Earlier than the change: then leases end early rather than late.
  SET v_now = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  START TRANSACTION;
  -- Of a longer line `lapses` is when the first of all its claims may lapse.
  SELECT GROUP_CONCAT(IF(l.many, NULL, CONCAT(s.number, ' H ', l.epoch, ' ', l.ttl, ' 0')) SEPARATOR ';'),
      GROUP_CONCAT(IF(l.many, NULL, s.number)), GROUP_CONCAT(IF(l.many, s.number, NULL)),
      GROUP_CONCAT(IF(l.many, s.claim, NULL)), GROUP_CONCAT(IF(l.many, CONCAT('0x', HEX(l.name)), NULL))
    INTO v_done, v_alone, v_longer, v_claims, v_names
    FROM JSON_TABLE(p_claims, '$[*]' COLUMNS (
      number INT PATH '$[0]', name VARCHAR(1024) CHARACTER SET latin1 PATH '$[1]', claim BIGINT UNSIGNED PATH '$[2]')) s
    STRAIGHT_JOIN tidelock_lines l FORCE INDEX (PRIMARY) ON l.name = UNHEX(s.name)
    WHERE l.lapses > v_now
      AND IF(l.many, l.day = v_now DIV 86400000000, l.client = p_client AND l.claim = s.claim)
    FOR UPDATE SKIP LOCKED;
  IF v_alone IS NOT NULL THEN
    -- All of these are there, and locked: see tidelock_together.
    INSERT INTO tidelock_lines (name, day, epoch)
      SELECT UNHEX(s.name), v_now DIV 86400000000, 0
      FROM JSON_TABLE(p_claims, '$[*]' COLUMNS (
        number INT PATH '$[0]', name VARCHAR(1024) CHARACTER SET latin1 PATH '$[1]')) s
      WHERE FIND_IN_SET(s.number, v_alone)
      ON DUPLICATE KEY UPDATE day = VALUES(day), lapses = v_now + ttl;
  END IF;
  IF v_longer IS NOT NULL THEN
    -- A join that updates would write the rows to a temporary table first. Nothing but numbers that this server wrote, and names
    -- of lines that are locked: a claim that is in another one is not touched.
    -- As a number, the last condition is no part of what is looked for: each claim with each name.
    SET @tidelock_renew = CONCAT('UPDATE tidelock_claims FORCE INDEX (by_client) SET lapses = ', v_now, ' + ttl, pushed = 0 ',
      'WHERE client = ', p_client, ' AND claim IN (', v_claims, ') AND (name IN (', v_names, ')) = 1');
    PREPARE tidelock_renew FROM @tidelock_renew;
    EXECUTE tidelock_renew;
    DEALLOCATE PREPARE tidelock_renew;
    -- Only the first that waits is told when to look again.
    SELECT CONCAT_WS(';', v_done, GROUP_CONCAT(s.number, IF(c.hold, CONCAT(' H ', c.epoch, ' ', c.ttl, ' '), ' W '), (
        SELECT IF(c.hold, SUM(o.hold = 0), CONCAT(SUM(o.hold OR o.place < c.place), ' ',
          IF(SUM(o.hold = 0 AND o.place < c.place), -1, MIN(IF(o.hold, o.lapses, NULL)) - v_now)))
        FROM tidelock_claims o FORCE INDEX (PRIMARY) WHERE o.name = c.name) SEPARATOR ';')) INTO v_done
      FROM JSON_TABLE(p_claims, '$[*]' COLUMNS (
        number INT PATH '$[0]', name VARCHAR(1024) CHARACTER SET latin1 PATH '$[1]', claim BIGINT UNSIGNED PATH '$[2]')) s
      STRAIGHT_JOIN tidelock_claims c FORCE INDEX (by_client) ON c.client = p_client AND c.claim = s.claim AND c.name = UNHEX(s.name)
      WHERE FIND_IN_SET(s.number, v_longer);
  END IF;
  COMMIT;
  SELECT COALESCE(v_done, '');
  IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
    CALL tidelock_refuse(1);
  END IF;
END
//
