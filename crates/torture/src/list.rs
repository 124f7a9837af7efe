//! The mistakes that mutants make.

/// A mistake, and where the torture looks for it.
#[derive(Debug)]
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    pub(crate) mistake: &'static str,
    /// The deployment.
    pub(crate) on: &'static str,
    pub(crate) change: Change,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// A hook of the same name in the source: see `model/flaws.rs`.
    Hook,
    /// Other code in the copy of the source. It asks `crate::mutant::is` whether it is wanted.
    Code { file: &'static str, find: &'static str, with: &'static str },
    /// Another text of a script or statement.
    Text { file: &'static str, find: &'static str, with: &'static str },
}

/// Changes of the copy that let environment variables choose the mutant, and the rates of the clients' clocks.
pub(crate) const SEAMS: &[(&str, &str, &str)] = &[
    (
        "crates/tidelock/src/lib.rs",
        "\nmod api;\n",
        "\nmod api;
pub(crate) mod mutant {
    use std::{env::var, sync::LazyLock};
    static NAME: LazyLock<String> = LazyLock::new(|| var(\"TIDELOCK_MUTANT\").unwrap_or_default());
    static CHANGE: LazyLock<Option<(String, String)>> =
        LazyLock::new(|| Some((var(\"TIDELOCK_MUTANT_FIND\").ok()?, var(\"TIDELOCK_MUTANT_WITH\").ok()?)));
    pub(crate) fn is(name: &str) -> bool { *NAME == name }
    static PPM: LazyLock<i128> =
        LazyLock::new(|| var(\"TIDELOCK_CLOCK_PPM\").ok().and_then(|ppm| ppm.parse().ok()).unwrap_or(0));
    static START: LazyLock<std::sync::Mutex<Option<u64>>> = LazyLock::new(std::sync::Mutex::default);
    pub(crate) fn skewed(nanos: u64) -> u64 {
        let mut start = START.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let passed = nanos.saturating_sub(*start.get_or_insert(nanos));
        (i128::from(nanos) + i128::from(passed) * *PPM / 1_000_000) as u64
    }
    pub(crate) fn text(text: &str) -> String {
        match &*CHANGE { Some((find, with)) => text.replace(find, with), None => text.to_owned() }
    }
}
",
    ),
    (
        "crates/tidelock/src/model/flaws.rs",
        "                        false\n",
        "                        $crate::mutant::is(stringify!($defect))\n",
    ),
    // The same where the feature for tests is on: mutants are built with all features.
    (
        "crates/tidelock/src/model/flaws.rs",
        "self.defects.has($crate::testing::defect::Defect::$defect)",
        "self.defects.has($crate::testing::defect::Defect::$defect) || $crate::mutant::is(stringify!($defect))",
    ),
    (
        "crates/tidelock/src/backends/redis/scripts.rs",
        "    named(&text)",
        "    named(&crate::mutant::text(&text))",
    ),
    (
        "crates/tidelock/src/backends/postgres/schema.rs",
        "[&*tables, RULES, VERBS, TOGETHER, ADVISORY, STOCK, RIGHTS].join(\"\\n\")",
        "crate::mutant::text(&[&*tables, RULES, VERBS, TOGETHER, ADVISORY, STOCK, RIGHTS].join(\"\\n\"))",
    ),
    (
        "crates/tidelock/src/backends/mysql/schema.rs",
        "conn.query_drop(statement).await",
        "conn.query_drop(crate::mutant::text(statement)).await",
    ),
    (
        "crates/tidelock/src/clock.rs",
        "    from_timespec(rustix::time::clock_gettime(rustix::time::ClockId::Boottime))\n",
        "    let now = from_timespec(rustix::time::clock_gettime(rustix::time::ClockId::Boottime));
    Moment::from_nanos(crate::mutant::skewed(now.as_nanos()))\n",
    ),
    // Half of the clients are fast, and half are slow.
    (
        "crates/tidelock-cli/src/torture/herd.rs",
        "        .env(URL, url)\n",
        "        .env(URL, url)
        .envs(std::env::var(\"TIDELOCK_SKEW\").map(|ppm| {
            let sign = if work.client % 2 == 0 { \"-\" } else { \"\" };
            (\"TIDELOCK_CLOCK_PPM\", format!(\"{sign}{ppm}\"))
        }))\n",
    ),
    // A window by a clock that is wrong, as it really is.
    (
        "crates/tidelock-cli/src/torture/player.rs",
        "    guard.valid_for()\n",
        "    let ppm = std::env::var(\"TIDELOCK_CLOCK_PPM\").ok().and_then(|ppm| ppm.parse::<i32>().ok());
    guard.valid_for().div_f64(1.0 + f64::from(ppm.unwrap_or(0)) / 1e6)\n",
    ),
];

const fn hook(name: &'static str, on: &'static str, mistake: &'static str) -> Mutant {
    Mutant { name, mistake, on, change: Change::Hook }
}

/// A mistake in a script or statement.
macro_rules! text {
    ($name:literal, $on:literal, $mistake:literal, $file:literal, $find:expr, $with:expr) => {
        Mutant {
            name: $name,
            mistake: $mistake,
            on: $on,
            change: Change::Text {
                file: concat!("crates/tidelock/src/backends/", $file),
                find: $find,
                with: $with,
            },
        }
    };
}

/// A mistake in code.
macro_rules! code {
    ($name:literal, $on:literal, $mistake:literal, $file:literal, $find:expr, $with:expr) => {
        Mutant {
            name: $name,
            mistake: $mistake,
            on: $on,
            change: Change::Code { file: concat!("crates/tidelock/src/", $file), find: $find, with: $with },
        }
    };
}

pub(crate) const LIST: &[Mutant] = &[
    hook("LeaseFromReply", "redis", "a lease counts from the answer"),
    hook("PushFromArrival", "redis", "a pushed lease counts from the push"),
    hook("DeadlineIgnored", "redis", "nobody looks at the deadline"),
    hook("GoneIgnored", "postgres", "\"gone\" is taken for no answer"),
    hook("LateGrantKept", "redis", "a grant for nobody is kept"),
    hook("PlaceKeptAfterCancel", "redis", "the place of one that went away is kept"),
    hook("NewIdOnRetry", "redis", "a repeated question has another id"),
    hook("UsedClaimGivenBack", "mysql", "a question that is given up takes a claim in use along"),
    hook("TokenKeptOnHandOff", "redis", "a hand-off keeps the token"),
    hook("TokenFromCounter", "redis", "tokens come from a counter of the client"),
    hook("HandOffForEver", "redis", "a process keeps a lock to itself"),
    hook("HandOffOfLost", "redis", "a lost lock is handed on"),
    hook("AbsentIgnored", "postgres", "a release that finds nothing is a success"),
    hook("PatienceIgnored", "redis", "a patient waiter gives up after three tries"),
    hook("Overtaking", "file", "a newcomer overtakes those who wait"),
    hook("ReadersPassWriters", "file", "readers do not wait for a writer that holds"),
    hook("WeightsIgnored", "file", "permits are counted without their weights"),
    code!(
        "TicketReleasesNothing",
        "redis",
        "a release by ticket is confirmed and not sent",
        "engine/detach.rs",
        "        self.tell_release(claim);\n        let leave",
        "        if crate::mutant::is(\"TicketReleasesNothing\") {\n            return Ok(());\n        }\n        self.tell_release(claim);\n        let leave"
    ),
    code!(
        "ShortestTimeIgnored",
        "file",
        "a lock with a shortest time is given back at once",
        "engine/detach.rs",
        "            while self.clock.now() < until {",
        "            while self.clock.now() < until && !crate::mutant::is(\"ShortestTimeIgnored\") {"
    ),
    code!(
        "EndingsUntold",
        "file",
        "nobody is told how a claim ended",
        "engine/endings.rs",
        ".filter(|told| told.receiver_count() > 0)",
        ".filter(|told| told.receiver_count() > 0 && !crate::mutant::is(\"EndingsUntold\"))"
    ),
    code!(
        "ShutdownKeepsHolds",
        "file",
        "a shutdown takes nobody's lock away",
        "engine/shutdown.rs",
        "            self.lost(leased, LossReason::Closed);",
        "            if crate::mutant::is(\"ShutdownKeepsHolds\") { continue; }\n            self.lost(leased, LossReason::Closed);"
    ),
    code!(
        "ClosedGrants",
        "file",
        "a client that was shut down takes locks",
        "engine/acquire.rs",
        "        if self.is_closed() {",
        "        if self.is_closed() && !crate::mutant::is(\"ClosedGrants\") {"
    ),
    text!(
        "RedisLeaveWithoutId",
        "redis",
        "a release does not compare",
        "redis/scripts/leave.lua",
        "    if string.sub(head, @single.id) ~= id then return 0 end\n",
        ""
    ),
    text!(
        "RedisEpochForgotten",
        "redis",
        "a free lock forgets its epoch",
        "redis/scripts/leave.lua",
        "redis.call('SET', key_here, '@form.idle' .. string.sub(head, @single.epoch), 'KEEPTTL')",
        "redis.call('DEL', key_here)"
    ),
    text!(
        "RedisLapsesEarly",
        "redis",
        "a lease ends after half of its time",
        "redis/scripts/enter.lua",
        "    if renewed + ttl > now_text + 0 then\n      if",
        "    if renewed + ttl / 2 > now_text + 0 then\n      if"
    ),
    text!(
        "RedisRenewsNothing",
        "redis",
        "a renewal is confirmed and not written",
        "redis/scripts/renew.lua",
        "        redis.call('SET', at, string.sub(head, 1, @single.renewed.before)",
        "        redis.call('SET', at .. ':lost', string.sub(head, 1, @single.renewed.before)"
    ),
    text!(
        "RedisPermitsUncounted",
        "redis",
        "the last permit is given with any weight",
        "redis/scripts/line.lua",
        "line.used + c.n <= c.of",
        "line.used < c.of"
    ),
    text!(
        "RedisReadersPass",
        "redis",
        "readers pass a writer that holds",
        "redis/scripts/line.lua",
        "  if line.exclusive == 1 then return false end\n",
        ""
    ),
    text!(
        "RedisWriterPasses",
        "redis",
        "a writer does not wait for readers",
        "redis/scripts/line.lua",
        "then return line.bases == 0 end",
        "then return line.exclusive == 0 end"
    ),
    text!(
        "RedisSameEpoch",
        "redis",
        "the next in a queue gets the epoch of the last",
        "redis/scripts/leave.lua",
        "math.max(string.sub(head, @queue.holder.epoch) + 1, least)",
        "tonumber(string.sub(head, @queue.holder.epoch))"
    ),
    text!(
        "RedisOwnersMixed",
        "redis",
        "an owner re-enters the hold of another one",
        "redis/scripts/enter.lua",
        "  elseif may_have(holders, c.owner, 1) then
    local at = 1
    while at and c.hold == @hold.waits do
      local text, after = claim_at(holders, at)
      local held = read(text)
      if held.owner == c.owner then",
        "  elseif c.owner ~= '' and holders ~= '' then
    local at = 1
    while at and c.hold == @hold.waits do
      local text, after = claim_at(holders, at)
      local held = read(text)
      if held.owner ~= '' then"
    ),
    text!(
        "RedisOvertaking",
        "redis",
        "a reader does not wait for writers in the queue",
        "redis/scripts/enter.lua",
        "if line.waiting == 0 and fits(c) then",
        "if fits(c) then"
    ),
    text!(
        "RedisWaiterForgotten",
        "redis",
        "a release of a queue forgets one who waits",
        "redis/scripts/leave.lua",
        "      head = write_queue(key_here, earliest, expires, count, claims)",
        "      head = write_queue(key_here, earliest, expires, count, string.sub(claims, 1, (string.find(claims, SEPARATOR, 2, true) or 0) - 1) .. string.sub(claims, string.find(claims, SEPARATOR, (string.find(claims, SEPARATOR, 2, true) or 1) + 1, true) or 9999))"
    ),
    text!(
        "RedisLineDamaged",
        "redis",
        "a claim is added to a line that was just cleared",
        "redis/scripts/line.lua",
        "    stored = nil\n    return call('SET', key, '@form.idle'",
        "    return call('SET', key, '@form.idle'"
    ),
    text!(
        "PostgresLapsesEarly",
        "postgres",
        "leases end a second early",
        "postgres/schema/rules.sql",
        "    IF c.lapses > p_at AND c.id IS DISTINCT FROM gone THEN",
        "    IF c.lapses > p_at + 1000000 AND c.id IS DISTINCT FROM gone THEN"
    ),
    text!(
        "PostgresPermitsUncounted",
        "postgres",
        "the last permit is given with any weight",
        "postgres/schema/rules.sql",
        "exclusive OR used + c.n > c.of",
        "exclusive OR used >= c.of"
    ),
    text!(
        "PostgresReadersPass",
        "postgres",
        "readers pass a writer that holds",
        "postgres/schema/rules.sql",
        "WHEN 1 THEN exclusive ELSE",
        "WHEN 1 THEN false ELSE"
    ),
    text!(
        "PostgresLeaveWithoutId",
        "postgres",
        "a release does not compare",
        "postgres/schema/verbs.sql",
        "cardinality(claims) = 1 AND (claims[1]).id = p_id AND (claims[1]).lapses > p_at",
        "cardinality(claims) = 1 AND (claims[1]).lapses > p_at"
    ),
    text!(
        "PostgresRenewsNothing",
        "postgres",
        "a renewal is confirmed and not written",
        "postgres/schema/verbs.sql",
        "    UPDATE tidelock.line SET used = p_at, claims[1].lapses = p_at + (claims[1]).ttl\n",
        "    UPDATE tidelock.line SET used = p_at\n"
    ),
    text!(
        "PostgresNoRestartRule",
        "postgres",
        "after a crash, locks are granted at once",
        "postgres/schema/rules.sql",
        "        + CASE WHEN s.here = state_here",
        "        + 0 * CASE WHEN s.here = state_here"
    ),
    text!(
        "PostgresSameEpoch",
        "postgres",
        "the next in the queue gets the epoch of the last",
        "postgres/schema/rules.sql",
        "    l.epoch := greatest(l.epoch + 1, p_at);",
        "    l.epoch := greatest(l.epoch, 1);"
    ),
    text!(
        "MysqlPermitsUncounted",
        "mysql",
        "the last permit is given with any weight",
        "mysql/schema/line.sql",
        "v_total = 0 OR v_used + v_weight <= v_total",
        "v_total = 0 OR v_used < v_total"
    ),
    text!(
        "MysqlLapsesEarly",
        "mysql",
        "leases in a queue end a second early",
        "mysql/schema/line.sql",
        "DELETE FROM tidelock_claims WHERE name = p_name AND lapses <= o_now;",
        "DELETE FROM tidelock_claims WHERE name = p_name AND lapses <= o_now + 1000000;"
    ),
    text!(
        "MysqlWriterPasses",
        "mysql",
        "a writer does not wait for readers",
        "mysql/schema/line.sql",
        "IF(v_weight = 0, v_bases = 0,",
        "IF(v_weight = 0, TRUE,"
    ),
    text!(
        "MysqlMarksEach",
        "mysql",
        "each release from a queue leaves a mark behind",
        "mysql/schema/verbs.sql",
        "  SET o_left = v_line = 3;\n",
        "  SET o_left = v_line = 3;\n  INSERT IGNORE INTO tidelock_gone VALUES (p_client, p_claim, v_now);\n"
    ),
    code!(
        "RedlockHalf",
        "redlock",
        "half of the servers are enough",
        "backends/redlock/quorum.rs",
        "    servers / 2 + 1\n",
        "    servers / 2 + usize::from(!crate::mutant::is(\"RedlockHalf\"))\n"
    ),
    code!(
        "RedlockNoRestartRule",
        "redlock",
        "a server that forgot votes at once",
        "backends/redlock/link.rs",
        "self.server.be_vouched_for(now, longest).await",
        "self.server.be_vouched_for(now, if crate::mutant::is(\"RedlockNoRestartRule\") { Duration::ZERO } else { longest }).await"
    ),
    code!(
        "OrderReadersPass",
        "etcd",
        "readers pass a writer that holds",
        "backends/shared/order.rs",
        "            Share::Shared => !self.exclusive,",
        "            Share::Shared => !self.exclusive || crate::mutant::is(\"OrderReadersPass\"),"
    ),
    code!(
        "OrderWriterPasses",
        "zookeeper",
        "a writer does not wait for readers",
        "backends/shared/order.rs",
        "            Share::Exclusive => self.holds == 0,",
        "            Share::Exclusive => self.holds == 0 || crate::mutant::is(\"OrderWriterPasses\") && !self.exclusive,"
    ),
    code!(
        "OrderPermitsUncounted",
        "etcd",
        "the last permit is given with any weight",
        "backends/shared/order.rs",
        "self.permits + u64::from(n) <= u64::from(of)",
        "(self.permits + u64::from(n) <= u64::from(of) || crate::mutant::is(\"OrderPermitsUncounted\") && self.permits < u64::from(of))"
    ),
    code!(
        "EtcdShortLeases",
        "etcd",
        "a lease is believed to be longer than it is",
        "backends/etcd/leases.rs",
        "now.since(lease.confirmed) + ttl <= lease.ttl)",
        "now.since(lease.confirmed) + ttl <= lease.ttl * if crate::mutant::is(\"EtcdShortLeases\") { 2 } else { 1 })"
    ),
    code!(
        "FileLapsesEarly",
        "file",
        "leases end after half of their time",
        "model/line.rs",
        "        standee.lapses = at.lease + standee.claim.ttl;",
        "        standee.lapses = at.lease + if crate::mutant::is(\"FileLapsesEarly\") { standee.claim.ttl / 4 } else { standee.claim.ttl };"
    ),
];
