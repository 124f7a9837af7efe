-- Stock: plans of items, and segments with their orders and with what was lent and brought. The rules are those of
-- src/stock/ledger.rs. Whatever is answered is flushed: a sale is not a lease that ends by itself.

CREATE TABLE IF NOT EXISTS tidelock.stock_plan (
  item text COLLATE "C" PRIMARY KEY,
  version bigint NOT NULL,
  plan text NOT NULL,
  over bigint             -- when it is forgotten
);

CREATE TABLE IF NOT EXISTS tidelock.segment (
  item text COLLATE "C",
  number int,
  sale text NOT NULL,
  fence bigint NOT NULL,             -- the newest mapping that anybody went by
  remaining bigint NOT NULL CHECK (remaining >= 0),
  came bigint NOT NULL,              -- filled and brought, ever
  lent bigint NOT NULL DEFAULT 0,    -- ever
  held bigint NOT NULL DEFAULT 0,
  returned bigint NOT NULL DEFAULT 0,
  pending bigint NOT NULL DEFAULT 0, -- transfers lent and not settled
  next_end bigint,                   -- when the next reservation ends, at the earliest
  over bigint,                       -- when it is forgotten
  PRIMARY KEY (item, number)
) WITH (fillfactor = 50);

-- Orders by what became of them: t taken, h held, r returned, v void.
CREATE TABLE IF NOT EXISTS tidelock.stock_order (
  item text COLLATE "C",
  number int,
  id text COLLATE "C",
  standing "char" NOT NULL,
  n bigint NOT NULL,
  ends bigint,                       -- of a reservation
  PRIMARY KEY (item, number, id)
);
CREATE INDEX IF NOT EXISTS stock_order_ends ON tidelock.stock_order (item, number, ends) WHERE ends IS NOT NULL;

CREATE TABLE IF NOT EXISTS tidelock.transfer (
  item text COLLATE "C",
  number int,
  id uuid,
  brought boolean,                   -- to this segment, else it was lent by it
  n bigint NOT NULL,
  target int NOT NULL,
  since bigint NOT NULL,
  settled boolean NOT NULL,
  PRIMARY KEY (item, number, id, brought)
);

-- Forgets a segment.
CREATE OR REPLACE FUNCTION tidelock.stock_forget(p_item text, p_number int) RETURNS void LANGUAGE sql VOLATILE AS $$
  DELETE FROM tidelock.stock_order WHERE item = p_item AND number = p_number;
  DELETE FROM tidelock.transfer WHERE item = p_item AND number = p_number;
  DELETE FROM tidelock.segment WHERE item = p_item AND number = p_number;
$$;

-- Locks a segment; null if there is none.
CREATE OR REPLACE FUNCTION tidelock.stock_open(p_item text, p_number int) RETURNS tidelock.segment
  LANGUAGE plpgsql AS $$
DECLARE
  s tidelock.segment;
BEGIN
  PERFORM tidelock.commits(true);
  SELECT * INTO s FROM tidelock.segment WHERE item = p_item AND number = p_number FOR UPDATE;
  IF s.over <= tidelock.now_micros() THEN
    PERFORM tidelock.stock_forget(p_item, p_number);
    RETURN NULL;
  END IF;
  RETURN s;
END $$;

-- Reservations that are over come back. The segment is not written yet.
CREATE OR REPLACE FUNCTION tidelock.stock_lapse(s tidelock.segment) RETURNS tidelock.segment LANGUAGE plpgsql AS $$
DECLARE
  p_at bigint := tidelock.now_micros();
  back bigint;
BEGIN
  IF s.next_end IS NULL OR s.next_end > p_at THEN RETURN s; END IF;
  WITH lapsed AS (
    UPDATE tidelock.stock_order SET standing = 'r', ends = NULL
    WHERE item = s.item AND number = s.number AND ends <= p_at RETURNING n
  )
  SELECT coalesce(sum(n), 0) INTO back FROM lapsed;
  SELECT min(ends) INTO s.next_end FROM tidelock.stock_order
    WHERE item = s.item AND number = s.number AND ends IS NOT NULL;
  s.remaining := s.remaining + back;
  s.held := s.held - back;
  s.returned := s.returned + back;
  RETURN s;
END $$;

-- Writes a segment that was opened.
CREATE OR REPLACE FUNCTION tidelock.stock_write(s tidelock.segment) RETURNS void LANGUAGE sql VOLATILE AS $$
  UPDATE tidelock.segment SET fence = s.fence, remaining = s.remaining, came = s.came, lent = s.lent, held = s.held,
    returned = s.returned, pending = s.pending, next_end = s.next_end, over = s.over
  WHERE item = s.item AND number = s.number
$$;

-- The plan of an item: its version and text, or no row.
CREATE OR REPLACE FUNCTION tidelock.stock_plan_of(p_item text) RETURNS TABLE (version bigint, plan text)
  LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT p.version, p.plan FROM tidelock.stock_plan p
  WHERE p.item = p_item AND (p.over IS NULL OR p.over > tidelock.now_micros())
$$;

-- Writes a plan if the one before is there. Says whether it was written.
CREATE OR REPLACE FUNCTION tidelock.stock_replan(p_item text, p_version bigint, p_plan text, p_keep bigint)
  RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p_at bigint := tidelock.now_micros();
BEGIN
  PERFORM tidelock.commits(true);
  DELETE FROM tidelock.stock_plan WHERE item = p_item AND over <= p_at;
  IF p_version = 1 THEN
    INSERT INTO tidelock.stock_plan VALUES (p_item, 1, p_plan, p_at + p_keep) ON CONFLICT DO NOTHING;
  ELSE
    UPDATE tidelock.stock_plan SET version = p_version, plan = p_plan, over = p_at + p_keep
    WHERE item = p_item AND version = p_version - 1;
  END IF;
  RETURN ARRAY[5, CASE WHEN FOUND THEN 1 ELSE 0 END];
END $$;

-- The steps answer numbers: {0} no such segment | {1, standing, n} of an order, by the letter's number, 117 unknown
--   | {2, remaining, pending} not enough | {3, mapping} the caller's is old | {4, n, pending} lent | {5} done
--   | {6, 1 if it was brought before} | {7} it belongs to another sale | {10, …} counts

-- Makes a segment with its share of the stock, unless it is there. Forgets some that are over.
CREATE OR REPLACE FUNCTION tidelock.stock_fill(p_item text, p_number int, p_sale text, p_fence bigint, p_n bigint)
  RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s tidelock.segment := tidelock.stock_open(p_item, p_number);
BEGIN
  IF s.item IS NULL THEN
    INSERT INTO tidelock.segment (item, number, sale, fence, remaining, came)
      VALUES (p_item, p_number, p_sale, p_fence, p_n, p_n) ON CONFLICT DO NOTHING;
    PERFORM tidelock.stock_forget(o.item, o.number) FROM (
      SELECT item, number FROM tidelock.segment WHERE over <= tidelock.now_micros() LIMIT 4 FOR UPDATE SKIP LOCKED) o;
    SELECT * INTO STRICT s FROM tidelock.segment WHERE item = p_item AND number = p_number;
  END IF;
  RETURN ARRAY[CASE WHEN s.sale = p_sale THEN 5 ELSE 7 END];
END $$;

-- Brings stock in, once; 0 only asks whether it was brought. Says so, and what the segment is then.
CREATE OR REPLACE FUNCTION tidelock.stock_brings(INOUT s tidelock.segment, p_transfer text, p_n bigint,
  OUT before boolean) LANGUAGE plpgsql AS $$
BEGIN
  before := EXISTS (SELECT FROM tidelock.transfer
    WHERE item = s.item AND number = s.number AND id = p_transfer::uuid AND brought);
  IF NOT before AND p_n > 0 THEN
    INSERT INTO tidelock.transfer VALUES (s.item, s.number, p_transfer::uuid, true, p_n, s.number, 0, true);
    s.remaining := s.remaining + p_n;
    s.came := s.came + p_n;
  END IF;
END $$;

-- Steps on orders, one after the other, in one commit; three numbers for each, in order. `p_hows`: t takes `p_ns`, all or
-- nothing (0 only asks how the order stands), for `p_holds` microseconds unless that is null, after `p_transfers` was
-- brought unless that is null; g what it took comes back, c its reservation is confirmed, v it is never to be taken.
-- Those of one segment come together, and segments in one order, which is the same for all clients: nobody waits for one that
-- is locked by somebody who waits for his.
CREATE OR REPLACE FUNCTION tidelock.stock_order_steps(p_items text[], p_numbers int[], p_fences bigint[], p_orders text[],
  p_hows text[], p_ns bigint[], p_holds bigint[], p_transfers text[], p_brought bigint[]) RETURNS bigint[]
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  a record;
  at_item text;
  at_number int;
  s tidelock.segment;
  o tidelock.stock_order;
  after "char";
  answers bigint[] := '{}';
BEGIN
  FOR a IN
    SELECT * FROM unnest(p_items, p_numbers, p_fences, p_orders, p_hows, p_ns, p_holds, p_transfers, p_brought)
      AS a (item, number, fence, id, how, n, hold, transfer, brought)
  LOOP
    IF at_item IS DISTINCT FROM a.item OR at_number IS DISTINCT FROM a.number THEN
      IF s.item IS NOT NULL THEN PERFORM tidelock.stock_write(s); END IF;
      at_item := a.item;
      at_number := a.number;
      s := tidelock.stock_open(at_item, at_number);
    END IF;
    IF s.item IS NULL THEN
      answers := answers || ARRAY[0::bigint, 0, 0];
      CONTINUE;
    END IF;
    IF a.transfer IS NOT NULL THEN
      SELECT (b.s).* INTO s FROM tidelock.stock_brings(s, a.transfer, a.brought) b;
    END IF;
    IF a.fence < s.fence THEN
      answers := answers || ARRAY[3, s.fence, 0];
      CONTINUE;
    END IF;
    s.fence := a.fence;
    SELECT * INTO o FROM tidelock.stock_order WHERE item = a.item AND number = a.number AND id = a.id;
    IF a.how <> 't' OR s.remaining < a.n OR o.standing = 'h' THEN
      s := tidelock.stock_lapse(s);
      SELECT * INTO o FROM tidelock.stock_order WHERE item = a.item AND number = a.number AND id = a.id;
    END IF;
    after := coalesce(o.standing, 'u');
    IF a.how = 't' THEN
      IF o.id IS NULL AND s.remaining < a.n THEN
        answers := answers || ARRAY[2, s.remaining, s.pending];
        CONTINUE;
      ELSIF o.id IS NULL AND a.n > 0 THEN
        after := CASE WHEN a.hold IS NULL THEN 't' ELSE 'h' END;
        o.n := a.n;
        s.remaining := s.remaining - a.n;
        IF after = 'h' THEN
          o.ends := tidelock.now_micros() + a.hold;
          s.held := s.held + a.n;
          s.next_end := least(s.next_end, o.ends);
        END IF;
        INSERT INTO tidelock.stock_order VALUES (a.item, a.number, a.id, after, o.n, o.ends);
      END IF;
    ELSIF o.id IS NULL AND a.how <> 'c' THEN
      after := 'v';
      INSERT INTO tidelock.stock_order VALUES (a.item, a.number, a.id, after, 0, NULL);
    ELSIF a.how = 'g' AND o.standing IN ('t', 'h') THEN
      after := 'r';
      s.remaining := s.remaining + o.n;
      s.returned := s.returned + o.n;
    ELSIF a.how = 'c' AND o.standing = 'h' THEN
      after := 't';
    END IF;
    IF o.id IS NOT NULL AND after <> o.standing THEN
      IF o.standing = 'h' THEN s.held := s.held - o.n; END IF;
      UPDATE tidelock.stock_order SET standing = after, ends = NULL
      WHERE item = a.item AND number = a.number AND id = a.id;
    END IF;
    answers := answers || ARRAY[1, ascii(after::text), coalesce(o.n, 0)];
  END LOOP;
  IF s.item IS NOT NULL THEN PERFORM tidelock.stock_write(s); END IF;
  RETURN answers;
END $$;

-- Takes stock out, as much as there is up to what is asked for, to be brought to another segment.
CREATE OR REPLACE FUNCTION tidelock.stock_lend(p_item text, p_number int, p_transfer text, p_n bigint, p_to int)
  RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s tidelock.segment := tidelock.stock_open(p_item, p_number);
  lent bigint;
BEGIN
  IF s.item IS NULL THEN RETURN ARRAY[0]; END IF;
  s := tidelock.stock_lapse(s);
  SELECT n INTO lent FROM tidelock.transfer
    WHERE item = p_item AND number = p_number AND id = p_transfer::uuid AND NOT brought;
  IF lent IS NULL THEN
    -- After the end of a sale nothing is written that would outlive it.
    lent := CASE WHEN s.fence = 9007199254740991 THEN 0 ELSE least(p_n, s.remaining) END;
    IF lent > 0 THEN
      s.remaining := s.remaining - lent;
      s.lent := s.lent + lent;
      s.pending := s.pending + 1;
      INSERT INTO tidelock.transfer
        VALUES (p_item, p_number, p_transfer::uuid, false, lent, p_to, tidelock.now_micros(), false);
    END IF;
  END IF;
  PERFORM tidelock.stock_write(s);
  RETURN ARRAY[4, lent, s.pending];
END $$;

CREATE OR REPLACE FUNCTION tidelock.stock_bring(p_item text, p_number int, p_transfer text, p_n bigint)
  RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s tidelock.segment := tidelock.stock_open(p_item, p_number);
  b record;
BEGIN
  IF s.item IS NULL THEN RETURN ARRAY[0]; END IF;
  SELECT * INTO b FROM tidelock.stock_brings(s, p_transfer, p_n);
  PERFORM tidelock.stock_write(b.s);
  RETURN ARRAY[6, CASE WHEN b.before THEN 1 ELSE 0 END];
END $$;

-- What was lent has been brought. It is remembered, so that a late repetition lends nothing.
CREATE OR REPLACE FUNCTION tidelock.stock_settle(p_item text, p_number int, p_transfer text) RETURNS bigint[]
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s tidelock.segment := tidelock.stock_open(p_item, p_number);
BEGIN
  IF s.item IS NULL THEN RETURN ARRAY[0]; END IF;
  UPDATE tidelock.transfer SET settled = true
  WHERE item = p_item AND number = p_number AND id = p_transfer::uuid AND NOT brought AND NOT settled;
  IF FOUND THEN
    s.pending := s.pending - 1;
    PERFORM tidelock.stock_write(s);
  END IF;
  RETURN ARRAY[5];
END $$;

-- Counts: {10, remaining, sold, held, returned, then for each transfer that is not settled: both halves of its id, n, to, age}.
CREATE OR REPLACE FUNCTION tidelock.stock_look(p_item text, p_number int) RETURNS bigint[]
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s tidelock.segment := tidelock.stock_open(p_item, p_number);
  t record;
  answer bigint[];
BEGIN
  IF s.item IS NULL THEN RETURN ARRAY[0]; END IF;
  s := tidelock.stock_lapse(s);
  PERFORM tidelock.stock_write(s);
  answer := ARRAY[10, s.remaining, s.came - s.lent - s.remaining - s.held, s.held, s.returned];
  FOR t IN
    SELECT replace(id::text, '-', '') id, n, target, greatest(0, tidelock.now_micros() - since) age
    FROM tidelock.transfer WHERE item = p_item AND number = p_number AND NOT brought AND NOT settled
  LOOP
    answer := answer || ARRAY[('x' || left(t.id, 16))::bit(64)::bigint, ('x' || right(t.id, 16))::bit(64)::bigint,
      t.n, t.target, t.age];
  END LOOP;
  RETURN answer;
END $$;

-- Turns away whoever wants to take. The segment is forgotten after a while.
CREATE OR REPLACE FUNCTION tidelock.stock_close(p_item text, p_number int, p_keep bigint) RETURNS bigint[]
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s tidelock.segment := tidelock.stock_open(p_item, p_number);
BEGIN
  IF s.item IS NULL THEN RETURN ARRAY[0]; END IF;
  s.fence := 9007199254740991;
  s.over := tidelock.now_micros() + p_keep;
  PERFORM tidelock.stock_write(s);
  RETURN ARRAY[5];
END $$;
