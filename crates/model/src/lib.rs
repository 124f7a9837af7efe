//! A model of tidelock's Redlock, and a search through all that can happen in it: `docs/model.md` says what is
//! promised and what was found. No part of the library depends on it.

pub mod check;
pub mod line;
pub mod naive;
pub mod rules;
pub mod runs;
pub mod state;
pub mod steps;
mod story;
