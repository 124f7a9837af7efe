//! One file per verb.

pub(crate) mod r#break;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod stores;
