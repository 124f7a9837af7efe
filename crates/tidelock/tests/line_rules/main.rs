//! The rules of `line.rs`, each as a property of random operations, and all of them together
//! against a reference that is too simple to be wrong: a plain list that is walked for everything.

mod naive;
mod play;

use std::{collections::HashMap, sync::Arc};

use naive::{Naive, Rules, fits, name, taken};
use play::{Answer, Op, Player, long_lines, share, sharing, short_lines};
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};
use tidelock::{
    backend::{Ask, ClaimId, ClaimView, Entered, Leave, Refusal, Share, Standing, What},
    line::Line,
};

fn config() -> ProptestConfig {
    ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() }
}

fn ids(claims: &[ClaimView]) -> Vec<ClaimId> {
    claims.iter().map(|claim| claim.id).collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn holders_fit_and_the_first_that_waits_does_not(ops in long_lines(150)) {
        let mut player = Player::<Line>::new();
        for op in &ops {
            player.play(op);
            let view = player.view();
            let held = taken(view.holders.iter().map(|holder| (holder.epoch.unwrap(), holder.share)));
            for (index, share) in held.iter().enumerate() {
                prop_assert!(fits(&held[..index], *share), "{:?} do not fit", held);
            }
            if let Some(first) = view.waiters.first() {
                prop_assert!(!fits(&held, first.share), "{} waits behind {:?}", first.share, held);
            }
        }
    }

    #[test]
    fn holders_are_the_head_of_the_line(ops in long_lines(150)) {
        let mut player = Player::<Line>::new();
        player.play_all(&ops);
        let view = player.view();
        for (index, id) in ids(&view.waiters).into_iter().enumerate() {
            let Standing::Waiting(place) = player.stands(id) else { panic!("{id} waits") };
            prop_assert_eq!(place.ahead as usize, view.holders.len() + index);
            prop_assert_eq!(place.lapse_in.is_some(), index == 0, "one is told when to ask, not a herd");
        }
    }

    #[test]
    fn nobody_overtakes(ops in long_lines(150)) {
        let mut player = Player::<Line>::new();
        for op in &ops {
            let before = player.view();
            let answer = player.play(op);
            let after = player.view();
            let (waited, waits, holds) = (ids(&before.waiters), ids(&after.waiters), ids(&after.holders));
            let stayed: Vec<_> = waited.iter().filter(|id| waits.contains(id)).copied().collect();
            prop_assert!(waits.starts_with(&stayed), "the order changed");
            let first_that_stayed = waited.iter().position(|id| stayed.contains(id)).unwrap_or(waited.len());
            // A claim that rides on another claim of its owner overtook nobody: the other got the lock.
            let came_along = |id: &ClaimId| {
                let at = holds.iter().position(|holder| holder == id);
                at.is_some_and(|at| after.holders[..at].iter().any(|h| h.epoch == after.holders[at].epoch))
            };
            let overtook = |id: &ClaimId| holds.contains(id) && !came_along(id);
            prop_assert!(!waited[first_that_stayed..].iter().any(overtook), "one overtook");
            if let Answer::Entered(Entered::Held(grant)) = answer {
                let had_it = before.holders.iter().any(|holder| holder.epoch == Some(grant.epoch));
                prop_assert!(had_it || stayed.is_empty(), "a newcomer overtook");
            }
        }
    }

    #[test]
    fn epochs_grow_over_grants_and_over_forgetting(ops in short_lines(200), forgets in any::<bool>()) {
        let (mut player, mut last) = (Player::<Line>::new(), 0);
        for op in &ops {
            let before = player.view();
            if forgets && player.line.may_be_forgotten(player.at) {
                player.line = Line::default();
            }
            let answer = player.play(op);
            if let Answer::Entered(Entered::Held(grant)) = answer {
                let had_it = before.holders.iter().any(|holder| holder.epoch == Some(grant.epoch));
                prop_assert!(had_it || grant.epoch > last, "{} after {last}", grant.epoch);
                last = last.max(grant.epoch);
            }
            player.view();
            for effect in player.effects.drain(..) {
                let What::Granted(grant) = effect.what else { continue };
                // An owner's claims that waited come along with the same grant.
                let owned = player.claims[effect.id.serial() as usize].owner.is_some();
                prop_assert!(grant.epoch > last || (owned && grant.epoch == last), "{} after {last}", grant.epoch);
                last = grant.epoch;
            }
        }
    }

    #[test]
    fn whatever_is_said_twice_means_the_same_once(ops in long_lines(60)) {
        let mut player = Player::<Line>::new();
        player.play_all(&ops);
        let seen = player.view();
        for id in ids(&seen.holders).into_iter().chain(ids(&seen.waiters)) {
            let claim = Arc::clone(&player.claims[id.serial() as usize]);
            let standing = player.stands(id);
            let view = player.view();
            prop_assert_eq!(player.stands(id), standing);
            let entered = player.line.enter(&claim, Ask::Queue, player.at, &mut player.effects);
            match standing {
                Standing::Held(grant) => prop_assert_eq!(entered, Entered::Held(grant)),
                Standing::Waiting(place) => prop_assert_eq!(entered, Entered::Waiting(place)),
                _ => panic!("{id} is in line"),
            }
            prop_assert_eq!(player.view(), view, "asking again changed something");
        }
        for id in ids(&seen.holders).into_iter().chain(ids(&seen.waiters)) {
            prop_assert!(player.line.leave(id, Leave::Done, player.at, &mut Vec::new()));
            let view = player.view();
            let mut effects = Vec::new();
            prop_assert!(!player.line.leave(id, Leave::evicted("by hand"), player.at, &mut effects));
            prop_assert_eq!((player.view(), effects), (view, Vec::new()), "leaving twice freed somebody");
        }
        prop_assert!(player.line.is_empty());
    }

    #[test]
    fn leave_of_an_unknown_claim_changes_nothing(ops in long_lines(60)) {
        let mut player = Player::<Line>::new();
        for op in &ops {
            player.play(op);
            let view = player.view();
            player.effects.clear();
            prop_assert_eq!(player.play(&Op::LeaveUnknown), Answer::Left(false));
            prop_assert_eq!(&player.effects, &[]);
            prop_assert_eq!(player.view(), view);
        }
    }

    #[test]
    fn claim_is_in_line_until_it_leaves_or_lapses(ops in long_lines(150)) {
        let (mut player, mut until) = (Player::<Line>::new(), HashMap::new());
        for op in &ops {
            let answer = player.play(op);
            let told = matches!(answer, Answer::Entered(Entered::Held(_) | Entered::Waiting(_))
                | Answer::Stands(Standing::Held(_) | Standing::Waiting(_)));
            if let Some(claim) = &player.about {
                if told {
                    until.insert(claim.id, player.at.lease + claim.ttl);
                } else if matches!(answer, Answer::Left(true)) {
                    until.remove(&claim.id);
                }
            }
            until.retain(|_, lapses| *lapses > player.at.lease);
            let view = player.view();
            let mut seen: Vec<_> = view.holders.iter().chain(&view.waiters).map(|claim| {
                (claim.id, player.at.lease + claim.lapse_in)
            }).collect();
            let mut expected: Vec<_> = until.iter().map(|(id, lapses)| (*id, *lapses)).collect();
            seen.sort();
            expected.sort();
            prop_assert_eq!(&seen, &expected);
            let first = expected.iter().map(|(_, lapses)| *lapses).min();
            prop_assert!(player.line.next_lapse() <= first, "a lapse would be overlooked");
        }
        player.pass(player.line.longest_ttl().as_millis() as u64);
        player.view();
        prop_assert!(player.line.is_empty(), "nobody outlives the longest lease");
    }

    #[test]
    fn try_leaves_nothing_behind(ops in long_lines(100), share in share(3), owner in 0..3_u8) {
        let mut player = Player::<Line>::new();
        player.play_all(&ops);
        let view = player.view();
        let answer = player.play(&Op::Enter { share, owner: Some(owner), ttl: 1_000, ask: Ask::Try });
        match answer {
            Answer::Entered(Entered::Held(_)) => {
                prop_assert_eq!(player.view().holders.len(), view.holders.len() + 1);
            }
            Answer::Entered(Entered::Busy | Entered::Refused(_)) => prop_assert_eq!(player.view(), view),
            other => panic!("a try is {other:?}"),
        }
    }

    #[test]
    fn sharing_claims_agree_and_exclusive_claims_fit_any(first in share(3), second in share(3)) {
        let mut player = Player::<Line>::new();
        let (claim, _) = player.enter(first, None);
        let (_, entered) = player.enter(second, None);
        match (first.capacity(), second.capacity()) {
            (Some(agreed), Some(asked)) if agreed != asked => {
                prop_assert_eq!(entered, Entered::Refused(Refusal::Capacity(agreed)));
                player.leave(&claim);
                prop_assert!(matches!(player.enter(second, None).1, Entered::Held(_)), "the first has left");
            }
            _ => prop_assert!(matches!(entered, Entered::Held(_) | Entered::Waiting(_))),
        }
    }

    #[test]
    fn reentry_rides_until_the_last_leaves(
        kind in 0..3_u8, base in any::<prop::sample::Index>(), riders in prop::collection::vec(any::<usize>(), 1..40),
        strangers in 0..40_usize,
    ) {
        let shares = sharing(kind);
        let base = shares[base.index(shares.len())];
        let covered: Vec<_> = shares.into_iter().filter(|share| base.covers(*share)).collect();
        let mut player = Player::<Line>::new();
        let (first, entered) = player.enter(base, Some(0));
        let Entered::Held(grant) = entered else { panic!("the line is empty") };
        let strangers: Vec<_> = (0..strangers).map(|_| player.enter(Share::Exclusive, None).0).collect();
        let mut owned = vec![first];
        for rider in &riders {
            let (claim, entered) = player.enter(covered[rider % covered.len()], Some(0));
            prop_assert!(matches!(entered, Entered::Held(again) if again.epoch == grant.epoch));
            owned.push(claim);
        }
        for pick in riders.into_iter().chain([0]) {
            prop_assert_eq!(ids(&player.view().waiters).len(), strangers.len(), "the owner still holds");
            let claim = owned.swap_remove(pick % owned.len());
            player.leave(&claim);
        }
        let view = player.view();
        prop_assert_eq!(ids(&view.holders).first().copied(), strangers.first().map(|claim| claim.id));
        prop_assert!(view.holders.iter().all(|holder| holder.epoch > Some(grant.epoch)));
    }

    #[test]
    fn asking_for_more_than_is_held_is_refused(
        kind in 0..2_u8, held in any::<prop::sample::Index>(), asked in any::<usize>(), others in 0..40,
    ) {
        let (exclusive, shares) = (Share::Exclusive, sharing(kind));
        let held = shares[1..][held.index(shares.len() - 1)];
        let more: Vec<_> = shares.into_iter().filter(|share| !held.covers(*share)).collect();
        let mut player = Player::<Line>::new();
        player.enter(held, Some(0));
        (0..others).for_each(|other| drop(player.enter(if other % 5 == 4 { exclusive } else { held }, None)));
        let view = player.view();
        let (_, entered) = player.enter(more[asked % more.len()], Some(0));
        prop_assert_eq!(entered, Entered::Refused(Refusal::Upgrade(held)));
        prop_assert_eq!(player.view(), view);
    }

    #[test]
    fn writer_that_goes_on_reading_lets_in_the_readers_before_the_next_writer(
        before in 0..40_usize, behind in 0..40_usize,
    ) {
        let mut player = Player::<Line>::new();
        let (writes, _) = player.enter(Share::Exclusive, Some(0));
        let (reads, _) = player.enter(Share::Shared, Some(0));
        let readers: Vec<_> = (0..before).map(|_| player.enter(Share::Shared, None).0).collect();
        let (writer, _) = player.enter(Share::Exclusive, None);
        (0..behind).for_each(|_| drop(player.enter(Share::Shared, None)));
        player.leave(&writes);
        prop_assert_eq!((player.view().holders.len(), player.view().waiters.len()), (1 + before, 1 + behind));
        readers.iter().for_each(|reader| player.leave(reader));
        prop_assert_eq!(player.view().holders.len(), 1, "the owner still reads");
        player.leave(&reads);
        prop_assert_eq!(ids(&player.view().holders), [writer.id]);
    }

    #[test]
    fn line_of_any_length_is_as_the_reference_says(ops in long_lines(400)) {
        let (mut line, mut naive) = (Player::<Line>::new(), Player::<Naive>::new());
        for (step, op) in ops.iter().enumerate() {
            prop_assert_eq!(line.play(op), naive.play(op), "step {}: {:?}", step, op);
            prop_assert_eq!(&line.effects, &naive.effects, "step {}: {:?}", step, op);
            if step % 8 == 0 || step + 1 == ops.len() {
                prop_assert_eq!(line.line.look(&name(), line.at), naive.line.look(naive.at), "step {}", step);
            }
        }
    }
}

#[test]
fn line_of_ten_thousand_claims_is_as_the_reference_says() {
    let (mut line, mut naive) = (Player::<Line>::new(), Player::<Naive>::new());
    let enter = |share, owner| Op::Enter { share, owner, ttl: 1_000_000, ask: Ask::Queue };
    let mut script = vec![enter(Share::Exclusive, Some(0))];
    script
        .extend((0..10_000).map(|i| enter(if i % 3 == 0 { Share::Exclusive } else { Share::Shared }, None)));
    // Enough riders between holders and waiters that the room between two keys of the index runs out.
    script
        .extend((0..100).map(|i| enter(if i % 2 == 0 { Share::Exclusive } else { Share::Shared }, Some(0))));
    script.extend((0..300).map(|i| Op::Leave(i * 7_919, Leave::Done)));
    script.extend((0..100).map(|i| Op::Renew(i * 104_729)));
    script.extend((0..100).map(|i| enter(Share::Shared, Some(i as u8 % 3))));
    for op in &script {
        assert_eq!(line.play(op), naive.play(op), "{op:?}");
        assert_eq!(line.effects, naive.effects, "{op:?}");
    }
    assert_eq!(line.line.look(&name(), line.at), naive.line.look(naive.at));
    assert!(line.line.len() > 9_500);
}
