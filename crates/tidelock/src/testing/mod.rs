//! For tests of programs that use locks, and for authors of backends (feature `testing`).
//!
//! To test your own code, use [`Clock`] and [`take_away`]; the guide has
//! [a page about it](crate::docs::testing_your_code). The modules prove that a backend is correct:
//!
//! | module | what it is |
//! |---|---|
//! | [`suite`], [`cases`] | the conformance cases that every store passes, from one list |
//! | [`compare`] | random operations against a store and against [`line`](crate::model::line) |
//! | [`faulty`] | a store that loses, delays, doubles and forgets, driven by a seed |
//! | [`history`] | what happened, and a checker of what may happen |
//! | `hostile` | every reader of bytes from outside, for fuzzing |
//! | [`order`] | who overtakes whom in a store's line |
//! | [`simulation`] | the engine on the faulty store, replayable by one number |
//! | `stock` | the same for stores of stock: shared cases, comparison with their model |

pub mod cases;
pub mod compare;
#[doc(hidden)]
pub mod defect;
pub mod faulty;
pub mod history;
#[doc(hidden)]
pub mod hostile;
pub mod order;
mod raw;
pub mod rng;
pub mod simulation;
#[cfg(feature = "stock")]
pub mod stock;
pub mod suite;
mod take_away;

pub use self::take_away::take_away;
pub use crate::{api::shown::print_engine, clock::Clock};
