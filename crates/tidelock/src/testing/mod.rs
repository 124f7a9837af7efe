//! How a backend is proven: for its authors, and for ours (feature `testing`).
//!
//! | module | what it is |
//! |---|---|
//! | [`suite`], [`cases`] | the conformance cases that every store passes, from one list |
//! | [`compare`] | random operations against a store and against [`line`](crate::line) |
//! | [`faulty`] | a store that loses, delays, doubles and forgets, driven by a seed |
//! | [`history`] | what happened, and a checker of what may happen |
//! | [`order`] | who overtakes whom in a store's line |
//! | [`simulation`] | the engine on the faulty store, replayable by one number |
//! | [`stock`] | the same for stores of stock: shared cases, comparison with their model |

pub mod cases;
pub mod compare;
pub mod faulty;
pub mod history;
pub mod order;
pub mod rng;
pub mod simulation;
pub mod stock;
pub mod suite;
