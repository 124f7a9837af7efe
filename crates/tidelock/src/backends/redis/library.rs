//! The library of functions on a server: loaded if that is allowed, and called only if its code is ours.
//!
//! A function runs with the rights of its caller. Any user who may load functions could load other code under our name,
//! so "it exists" says nothing: the code is compared. A script that is called by the hash of its text needs no such care.

use redis::{
    Value,
    aio::{ConnectionLike, MultiplexedConnection},
};

use super::{scripts::Library, settings::Scripting};
use crate::backend::Failure;

/// What is known of the library on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loaded {
    /// Its code is ours.
    Ours,
    /// Other code is kept under its name, or under the name of one of its functions.
    Foreign,
    /// It is not there.
    Absent,
    /// The user may not ask.
    Unseen,
}

/// Loads the library, if that is wanted. Says whether it may be called.
pub(super) async fn prepare(
    library: &Library,
    scripting: Scripting,
    connection: &mut MultiplexedConnection,
) -> Result<Loaded, Failure> {
    match scripting {
        Scripting::Scripts | Scripting::Off => Ok(Loaded::Absent),
        Scripting::Any => {
            let mut both = redis::pipe();
            both.cmd("FUNCTION").arg("LOAD").arg(library.text());
            add_list(library, &mut both);
            let answers = connection.req_packed_commands(&both, 0, both.len()).await;
            // An older server has no functions, and not everybody may load them or look at them.
            let mut answers = answers.unwrap_or_default().into_iter();
            let (Some(loaded), Some(list)) = (answers.next(), answers.next()) else {
                return Ok(Loaded::Absent);
            };
            if loaded.extract_error().is_ok() {
                return Ok(Loaded::Ours);
            }
            Ok(seen(library, list))
        }
        Scripting::Functions => {
            let mut both = redis::pipe();
            add_list(library, &mut both);
            both.cmd("FUNCTION").arg("LIST");
            let answers = connection.req_packed_commands(&both, 0, both.len()).await;
            let mut answers = answers.unwrap_or_default().into_iter();
            let mut loaded = answers.next().map_or(Loaded::Unseen, |list| seen(library, list));
            if loaded == Loaded::Absent && answers.next().is_some_and(|all| is_taken(library, &all)) {
                loaded = Loaded::Foreign;
            }
            if loaded == Loaded::Foreign {
                return Err(Failure::denied(format!(
                    "somebody loaded other code under the name of the library {}, which would run with the rights of this user: find out who may call FUNCTION LOAD, then replace it with `{} | redis-cli -x FUNCTION LOAD REPLACE`",
                    library.name(),
                    library.print
                )));
            }
            Ok(loaded)
        }
    }
}

impl Loaded {
    /// Whether its functions may be called. One that an administrator loaded for users who may not look is trusted.
    pub(super) fn may_be_called(self, scripting: Scripting) -> bool {
        scripting == Scripting::Functions || self == Self::Ours
    }

    /// What should be put right about it.
    pub(super) fn concern(self, library: &Library) -> Option<String> {
        (self == Self::Foreign).then(|| {
            format!(
                "somebody loaded other code under the name of the library {}; it is not called, scripts are used instead: find out who may call FUNCTION LOAD, then remove it with FUNCTION DELETE",
                library.name()
            )
        })
    }
}

fn add_list(library: &Library, pipeline: &mut redis::Pipeline) {
    pipeline.cmd("FUNCTION").arg("LIST").arg("LIBRARYNAME").arg(library.name()).arg("WITHCODE");
}

/// What the answer to `FUNCTION LIST` shows.
fn seen(library: &Library, answer: Value) -> Loaded {
    let Ok(answer) = answer.extract_error() else { return Loaded::Unseen };
    let Value::Array(libraries) = answer else { return Loaded::Unseen };
    let code = libraries.first().and_then(|library| field(library, "library_code"));
    match code {
        // Nothing of our name. A function of our name in another library makes loading fail, and is not called.
        None => Loaded::Absent,
        Some(code) if code == library.text() => Loaded::Ours,
        Some(_) => Loaded::Foreign,
    }
}

/// Whether another library has a function of one of our names.
fn is_taken(library: &Library, all: &Value) -> bool {
    // Names are text wherever they stand, and nobody else has reason to use them.
    match all {
        Value::Array(items) | Value::Set(items) => items.iter().any(|item| is_taken(library, item)),
        Value::Map(pairs) => pairs.iter().any(|(_, value)| is_taken(library, value)),
        Value::BulkString(name) => library.has_function(&String::from_utf8_lossy(name)),
        Value::SimpleString(name) => library.has_function(name),
        _ => false,
    }
}

/// A field of a map, which is a list of pairs to those who speak the older protocol.
fn field(library: &Value, name: &str) -> Option<String> {
    let text = |value: &Value| redis::from_redis_value::<String>(value.clone()).ok();
    match library {
        Value::Map(pairs) => pairs
            .iter()
            .find(|(key, _)| text(key).as_deref() == Some(name))
            .and_then(|(_, value)| text(value)),
        Value::Array(items) => {
            let (pairs, _) = items.as_chunks::<2>();
            pairs
                .iter()
                .find(|[key, _]| text(key).as_deref() == Some(name))
                .and_then(|[_, value]| text(value))
        }
        _ => None,
    }
}
