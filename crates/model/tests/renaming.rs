//! States that differ in names only are searched once. That must not hide any.

use std::collections::HashSet;

use tidelock_model::{
    check,
    rules::{Bounds, Rules},
    state::{Link, State},
    steps::World,
};

const WORLD: World =
    World { rules: Rules::UNNUMBERED, bounds: Bounds { ttl: 2, forgets: 1, ..Bounds::CALM } };

/// Every state, each under all the names that it is reached with.
fn without_renaming() -> HashSet<State<3, 2>> {
    let start = State::start(&WORLD.rules, &WORLD.bounds);
    let (mut seen, mut open) = (HashSet::from([start]), vec![start]);
    let mut steps = Vec::new();
    while let Some(state) = open.pop() {
        WORLD.steps(&state, &mut steps);
        for step in steps.drain(..) {
            let next = WORLD.after(&state, step);
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    seen
}

#[test]
fn a_search_with_renaming_sees_the_same_states_as_one_without() {
    let all = without_renaming();
    let renamed: HashSet<_> = all.iter().map(|state| state.canonical()).collect();
    let report = check::all::<3, 2>(WORLD.rules, WORLD.bounds);
    assert_eq!(report.unique, renamed.len());
    assert!(all.len() > 5 * renamed.len(), "{} states under {} names", renamed.len(), all.len());
}

#[test]
fn another_order_of_servers_is_the_same_state() {
    let mut state = State::<3, 2>::start(&WORLD.rules, &WORLD.bounds);
    state.sites[0].links[1] = Link { enter: true, ..Link::default() };
    let mut other = state;
    other.sites.rotate_left(1);
    assert_ne!(state, other);
    assert_eq!(state.canonical(), other.canonical());
}
