//! One file per verb.

pub(crate) mod acquire;
pub(crate) mod r#break;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod events;
pub(crate) mod leader;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod show;
pub(crate) mod stores;
pub(crate) mod top;
