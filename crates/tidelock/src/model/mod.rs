//! What a lock is, without clients, stores or clocks: names, claims, tokens, and the rules of a line.

pub(crate) mod claim;
pub(crate) mod escape;
pub(crate) mod flaws;
pub mod line;
pub(crate) mod name;
pub(crate) mod owner;
pub(crate) mod shards;
mod text;
pub(crate) mod token;
