//! The cases, one file for each promise.
//!
//! A case is a sentence with one property. Where it is about the contract it uses the verbs
//! themselves, where it is about what users see it uses the public interface. What a case needs of a
//! store stands behind its name in the list at the head of its file.
#![allow(clippy::unwrap_used, reason = "a case fails by panicking")]

mod cancel;
mod capacity;
mod cleanup;
mod election;
mod exclusion;
mod fencing;
mod follow;
mod follow_all;
mod lease;
mod loss;
mod names;
mod once;
mod order;
mod permits;
mod read_write;
mod reentry;
mod renewal;
mod tickets;

use super::suite::Case;

/// Every case.
pub fn all() -> Vec<Case> {
    let groups: [fn() -> Vec<Case>; 18] = [
        exclusion::cases,
        order::cases,
        read_write::cases,
        permits::cases,
        lease::cases,
        renewal::cases,
        loss::cases,
        fencing::cases,
        reentry::cases,
        cancel::cases,
        names::cases,
        capacity::cases,
        cleanup::cases,
        tickets::cases,
        election::cases,
        follow::cases,
        follow_all::cases,
        once::cases,
    ];
    groups.into_iter().flat_map(|group| group()).collect()
}

/// The list of a file's cases, each with what it needs of a store.
macro_rules! cases {
    ($group:literal: $($case:ident $(($($need:ident),+))?),+ $(,)?) => {
        pub(super) fn cases() -> Vec<$crate::testing::suite::Case> {
            vec![$($crate::testing::suite::Case {
                group: $group,
                name: stringify!($case),
                needs: |_abilities| {
                    $($($crate::testing::cases::needs::$need(_abilities)?;)+)?
                    Ok(())
                },
                run: |world| Box::pin($case(world)),
            }),+]
        }
    };
}

use cases;

/// What a case may need of a store.
mod needs {
    use crate::backend::Abilities;

    pub(super) fn fair(abilities: &Abilities) -> Result<(), &'static str> {
        if abilities.fair { Ok(()) } else { Err("this store does not grant in order of arrival") }
    }

    pub(super) fn follow(abilities: &Abilities) -> Result<(), &'static str> {
        abilities.follow
    }

    pub(super) fn permits(abilities: &Abilities) -> Result<(), &'static str> {
        abilities.permits.map_err(|_| "this store does not count permits")
    }

    pub(super) fn push(abilities: &Abilities) -> Result<(), &'static str> {
        if abilities.push { Ok(()) } else { Err("this store does not push") }
    }

    pub(super) fn reentry(abilities: &Abilities) -> Result<(), &'static str> {
        if abilities.reentry { Ok(()) } else { Err("owners of this store do not re-enter across clients") }
    }
}
