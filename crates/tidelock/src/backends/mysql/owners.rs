//! Who made the tables and procedures of our names, before any of them is used.
//!
//! A procedure that runs with its caller's rights, or a view in place of a table, would let everyone who may create
//! something in the database act with the rights of those who take locks there. A trigger, a table without its key or
//! without transactions would break exclusion.

use mysql_async::Row;

use super::{codec::column, schema::PARTS};

/// Of what a user cannot see, nothing is told: who may only `EXECUTE` sees procedures, and relies on those who made the
/// tables. Without patterns, because what a backslash means in them depends on the mode of the session.
pub(super) const QUESTION: &str = "\
    SELECT 'procedure', ROUTINE_NAME, DEFINER, SECURITY_TYPE FROM information_schema.ROUTINES \
      WHERE ROUTINE_SCHEMA = DATABASE() AND LEFT(ROUTINE_NAME, 9) = 'tidelock_' \
    UNION ALL SELECT 'table', TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES \
      WHERE TABLE_SCHEMA = DATABASE() AND LEFT(TABLE_NAME, 9) = 'tidelock_' \
    UNION ALL SELECT 'trigger', EVENT_OBJECT_TABLE, DEFINER, TRIGGER_NAME FROM information_schema.TRIGGERS \
      WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND LEFT(EVENT_OBJECT_TABLE, 9) = 'tidelock_' \
    UNION ALL SELECT 'key', TABLE_NAME, GROUP_CONCAT(COLUMN_NAME ORDER BY ORDINAL_POSITION), '' \
      FROM information_schema.COLUMNS \
      WHERE TABLE_SCHEMA = DATABASE() AND LEFT(TABLE_NAME, 9) = 'tidelock_' AND COLUMN_KEY = 'PRI' GROUP BY TABLE_NAME";

/// One answer to [`QUESTION`].
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thing {
    kind: String,
    name: String,
    /// The definer; of a table its type; of a key its columns.
    of: String,
    /// `DEFINER` or `INVOKER`; the engine of a table; the name of a trigger.
    how: String,
}

/// Why what was found may not be used, for people; nothing if it may.
pub(super) fn foreign(rows: &[Row]) -> Option<String> {
    let text = |row: &Row, index| {
        let text = column::<Option<Vec<u8>>>(row, index).ok().flatten().unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    };
    let things: Vec<_> = rows
        .iter()
        .map(|row| Thing {
            kind: text(row, 0),
            name: text(row, 1).to_lowercase(),
            of: text(row, 2),
            how: text(row, 3),
        })
        .collect();
    judge(&things)
}

fn judge(things: &[Thing]) -> Option<String> {
    let of_kind = |kind: &'static str| things.iter().filter(move |thing| thing.kind == kind);
    let tables: Vec<_> = tables().collect();
    let is_ours = |name: &str| tables.iter().find(|(ours, _)| *ours == name);
    for table in of_kind("table").filter(|table| is_ours(&table.name).is_some()) {
        if table.of != "BASE TABLE" || table.how != "InnoDB" {
            return Some(format!(
                "{} in the database is {}, and locks need a table of InnoDB: drop it if nobody needs it, or use another database",
                table.name,
                if table.of == "BASE TABLE" {
                    format!("a table of {}", table.how)
                } else {
                    format!("a {}", table.of)
                },
            ));
        }
        let key = of_kind("key").find(|key| key.name == table.name).map_or("", |key| &key.of);
        let wanted = is_ours(&table.name).map_or("", |(_, key)| key);
        if key != wanted {
            return Some(format!(
                "table {} in the database has the primary key ({key}), not ({wanted}), so two could hold one lock: drop it if nobody needs it, or use another database",
                table.name
            ));
        }
    }
    if let Some(trigger) = of_kind("trigger").find(|trigger| is_ours(&trigger.name).is_some()) {
        return Some(format!(
            "{} made a trigger {} on table {}, which may change who holds a lock: drop it",
            trigger.of, trigger.how, trigger.name
        ));
    }
    let procedures: Vec<_> =
        of_kind("procedure").filter(|one| procedures().any(|name| name == one.name)).collect();
    // What is not complete is made anew, and nothing of it is called before.
    procedures.iter().find(|one| one.name == "tidelock_version")?;
    if let Some(theirs) = procedures.iter().find(|one| one.how != "DEFINER") {
        return Some(format!(
            "procedure {} in the database was made by {} and runs with the rights of its caller, so it is not called: drop it, and have an administrator apply what `tidelock schema --print mysql` prints",
            theirs.name, theirs.of
        ));
    }
    let share = |definer: &str| procedures.iter().filter(|one| one.of == definer).count();
    let most = procedures.iter().max_by_key(|one| share(&one.of))?;
    let theirs = procedures.iter().find(|one| one.of != most.of)?;
    Some(format!(
        "procedure {} in the database was made by {}, and {} by {}: have an administrator apply what `tidelock schema --print mysql` prints, so that one user has made them all",
        theirs.name, theirs.of, most.name, most.of
    ))
}

/// The procedures of this build.
fn procedures() -> impl Iterator<Item = &'static str> {
    lines().filter_map(|line| line.strip_prefix("DROP PROCEDURE IF EXISTS "))
}

/// The tables of this build, and the columns of their primary keys.
fn tables() -> impl Iterator<Item = (&'static str, String)> {
    let mut table = None;
    lines().filter_map(move |line| {
        if let Some(rest) = line.strip_prefix("CREATE TABLE IF NOT EXISTS ") {
            table = rest.split(' ').next();
        }
        let line = line.trim();
        let key = match line.strip_prefix("PRIMARY KEY (") {
            Some(columns) => columns.split(')').next()?.replace(' ', ""),
            None if line.contains(" PRIMARY KEY") => line.split(' ').next()?.to_owned(),
            None => return None,
        };
        Some((table.take()?, key))
    })
}

fn lines() -> impl Iterator<Item = &'static str> {
    PARTS.into_iter().flat_map(str::lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thing(kind: &str, name: &str, of: &str, how: &str) -> Thing {
        Thing { kind: kind.into(), name: name.into(), of: of.into(), how: how.into() }
    }

    /// As one user makes it.
    fn sound() -> Vec<Thing> {
        let made = procedures().map(|name| thing("procedure", name, "admin@%", "DEFINER"));
        let tables = tables().flat_map(|(name, key)| {
            [thing("table", name, "BASE TABLE", "InnoDB"), thing("key", name, &key, "")]
        });
        made.chain(tables).collect()
    }

    #[test]
    fn the_names_and_keys_are_those_of_the_text() {
        let tables: Vec<_> = tables().collect();
        assert!(tables.contains(&("tidelock_lines", "name".to_owned())));
        assert!(tables.contains(&("tidelock_claims", "name,place".to_owned())));
        let made = PARTS.iter().map(|part| part.matches("CREATE TABLE IF NOT EXISTS").count()).sum::<usize>();
        assert_eq!(tables.len(), made);
        let made = PARTS.iter().map(|part| part.matches("CREATE PROCEDURE").count()).sum::<usize>();
        assert_eq!(procedures().count(), made);
    }

    #[test]
    fn what_one_user_made_is_used() {
        assert_eq!(judge(&sound()), None);
        assert_eq!(judge(&[]), None);
        // Tables and procedures of others that only begin alike.
        let more = [
            thing("procedure", "tidelock_report", "me@%", "INVOKER"),
            thing("table", "tidelock_notes", "VIEW", ""),
            thing("trigger", "tidelock_notes", "me@%", "mine"),
        ];
        assert_eq!(judge(&[&sound()[..], &more].concat()), None);
    }

    #[test]
    fn what_somebody_else_made_is_refused_by_name() {
        let change = |name: &str, kind: &str, of: &str, how: &str| {
            let mut things = sound();
            things.retain(|thing| (&*thing.kind, &*thing.name) != (kind, name));
            things.push(thing(kind, name, of, how));
            judge(&things).unwrap_or_default()
        };
        for (said, words) in [
            (change("tidelock_open", "procedure", "eve@%", "INVOKER"), ["eve@%", "tidelock_open"]),
            (change("tidelock_open", "procedure", "eve@%", "DEFINER"), ["eve@%", "admin@%"]),
            (change("tidelock_gone", "table", "VIEW", ""), ["tidelock_gone", "a VIEW"]),
            (change("tidelock_gone", "table", "BASE TABLE", "MEMORY"), ["tidelock_gone", "MEMORY"]),
            (change("tidelock_gone", "key", "client", ""), ["(client)", "(client,claim)"]),
            (change("tidelock_lines", "trigger", "eve@%", "trap"), ["eve@%", "trap"]),
        ] {
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
    }

    #[test]
    fn procedures_that_are_not_complete_are_made_anew_and_not_judged() {
        let mut things = sound();
        things.retain(|thing| thing.name != "tidelock_version");
        things.push(thing("procedure", "tidelock_open", "eve@%", "INVOKER"));
        assert_eq!(judge(&things), None);
    }
}
