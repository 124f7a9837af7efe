//! What those hear and see who watch locks.

use super::{Rule, TTL, Tale, at};
use crate::torture::{
    history::{Look, Released, Sight, Told},
    record::Which,
};

impl Tale {
    /// A lock that is held for long, whose ends are all noted, and a first client that listens to its own.
    fn listens() -> Self {
        let mut tale = Self::new();
        tale.0.ttls[0] = 4 * TTL;
        tale.0.processes[0].listens = Some(1);
        tale
    }

    fn is_told(&mut self, when: u64, how: &str) {
        self.0.told.push(Told { process: 0, at: at(when), name: 0, how: how.to_owned() });
    }

    fn looks(&mut self, from: u64, to: u64, held: &[u16]) {
        let held = Which::These(held.to_vec());
        self.0.looks.push(Look { process: 3, from: at(from), at: at(to), asked: Which::All, held });
    }

    fn sees(&mut self, when: u64, epoch: u64) {
        self.0.sights.push(Sight { process: 3, at: at(when), name: 0, watch: 1, token: epoch << 10 });
    }
}

#[test]
fn the_end_of_a_hold_is_told_to_those_who_listen() {
    let mut tale = Tale::listens();
    let held = tale.holds(0, 1, 0, 1, 100);
    assert_eq!(tale.broken(), [Rule::Untold]);
    tale.is_told(99, "released");
    assert_eq!(tale.broken(), []);
    tale.0.told[0].at = at(1_700);
    assert_eq!(tale.broken(), [Rule::Untold], "late");
    tale.fault(50, 60);
    assert_eq!(tale.broken(), [], "its process may have been stopped");
    tale.0.faults.clear();
    tale.0.processes[0].listens = None;
    assert_eq!(tale.broken(), [], "nobody listened");
    tale.0.processes[0].listens = Some(1);
    // Somebody else of this process may have it now.
    let other = tale.asks(0, super::Share::Exclusive, 50);
    (tale.0.ops[other].answer, tale.0.ops[other].answered) = (super::Answer::GaveUp, at(102));
    assert_eq!(tale.broken(), []);
    tale.0.ops.remove(other);
    tale.0.ops[held].left_behind = true;
    assert_eq!(tale.broken(), [], "it went on by its ticket");
}

#[test]
fn the_loss_of_a_hold_is_told_also_where_it_is_held_for_moments() {
    let mut tale = Tale::listens();
    tale.0.ttls[0] = TTL;
    let held = tale.holds(0, 1, 0, 1, 3_100);
    assert_eq!(tale.broken(), [], "releases of such locks are not noted");
    (tale.0.ops[held].lost, tale.0.ops[held].released) = (at(3_000), Released::NotHeld);
    assert_eq!(tale.broken(), [Rule::Untold]);
    tale.is_told(3_001, "Lost(Expired)");
    assert_eq!(tale.broken(), []);
}

#[test]
fn an_eviction_that_nobody_made_or_with_another_reason_is_found() {
    let mut tale = Tale::listens();
    tale.holds(0, 1, 0, 1, 100);
    tale.is_told(101, "evicted");
    assert_eq!(tale.broken(), [Rule::Untold]);
    tale.breaks(at(90), Some(at(100)), 1 << 10);
    tale.0.ops[0].released = Released::NotHeld;
    assert_eq!(tale.broken(), []);
    tale.0.breaks[0].holder = Some((2, 0));
    assert_eq!(tale.broken(), [Rule::Untold], "somebody else was taken out");
    tale.0.breaks[0].holder = Some((0, 0));
    tale.0.told[0].how = "evicted for \"nothing\"".to_owned();
    assert_eq!(tale.broken(), [Rule::Untold]);
}

#[test]
fn a_list_without_somebody_who_held_all_the_time_is_found() {
    let mut tale = Tale::new();
    tale.holds(0, 1, 0, 1, 100);
    tale.looks(10, 20, &[0]);
    tale.looks(90, 105, &[]);
    tale.looks(0, 20, &[]);
    assert_eq!(tale.broken(), []);
    tale.looks(10, 99, &[]);
    assert_eq!(tale.broken(), [Rule::Unseen]);
    tale.0.looks[3].asked = Which::These(vec![1]);
    assert_eq!(tale.broken(), [], "it was not asked for");
    tale.0.looks[3].asked = Which::These(vec![0]);
    assert_eq!(tale.broken(), [Rule::Unseen]);
    tale.fault(50, 60);
    assert_eq!(tale.broken(), [], "the store may have forgotten it");
    tale.0.faults.clear();
    tale.0.plan.overlaps_allowed = true;
    assert_eq!(tale.broken(), []);
}

#[test]
fn a_watch_that_goes_back_or_shows_the_past_is_found() {
    let mut tale = Tale::new();
    tale.holds(0, 1, 0, 1, 100);
    tale.holds(1, 2, 2, 102, 9_000);
    tale.sees(50, 1);
    tale.sees(104, 2);
    assert_eq!(tale.broken(), []);
    tale.sees(110, 1);
    assert_eq!(tale.broken(), [Rule::Watch], "an earlier term");
    tale.0.sights[2].watch = 2;
    assert_eq!(tale.broken(), [], "of another watch");
    tale.0.sights[2].at = at(2_700);
    assert_eq!(tale.broken(), [Rule::Watch], "it had given the lead back");
    tale.0.ops[0].released = Released::NotHeld;
    assert_eq!(tale.broken(), [], "nobody knows when it ended");
}
