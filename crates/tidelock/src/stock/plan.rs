//! The plan of an item: which segments it has, where they are, and which of them an order belongs to.
//!
//! It is stored, so that all clients agree on it, and it can be changed while selling. An order belongs to one segment by
//! its id alone, so a client that repeats it, from anywhere, asks where it was taken. When the segments change, some orders belong
//! elsewhere from then on: the mappings before are kept in the plan, and such an order is looked for there first.

use std::{fmt::Write, hash::Hasher};

use siphasher::sip::SipHasher24;

use super::store::CLOSED;

/// What a plan begins with. Sales of another version are refused: their steps name no sale.
const VERSION: &str = "2";
/// How often segments may be changed: each mapping before is kept.
const MAPPINGS: usize = 256;

/// Which segments an item has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Grows with each change.
    pub(super) version: u64,
    /// The number of the sale: drawn at random by the client that opens it, never 0. Another sale of the same item has
    /// another one, also after a server lost its data and cannot know the last.
    pub(super) sale: u64,
    pub(super) stage: Stage,
    pub(super) initial: u64,
    /// How many servers there are.
    pub(super) places: u32,
    /// Every segment that was ever in use, by its number.
    pub(super) segments: Vec<Segment>,
    /// The numbers of the segments in use, oldest mapping first: the last one is in force.
    pub(super) mappings: Vec<Vec<u32>>,
}

/// A segment in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// At which of the servers.
    pub(super) place: u32,
    /// What it was filled with.
    pub(super) share: u64,
}

/// How far a sale is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Segments may not be there yet.
    Filling,
    Selling,
    /// Stock is being moved between segments.
    Moving,
    Closed,
}

impl Plan {
    /// A new sale: shares that differ by one at most.
    pub(super) fn new(sale: u64, initial: u64, segments: u32, places: u32) -> Self {
        let share = |number: u32| share(initial, segments, number);
        let all = (0..segments).map(|number| Segment { place: number % places, share: share(number) });
        Self {
            version: 1,
            sale,
            stage: Stage::Filling,
            initial,
            places,
            segments: all.collect(),
            mappings: vec![(0..segments).collect()],
        }
    }

    /// The same sale with another stage.
    pub(super) fn at(&self, stage: Stage) -> Self {
        Self { version: self.version + 1, stage, ..self.clone() }
    }

    /// The same sale with another number of segments in use; nothing if it was changed too often.
    pub(super) fn resized(&self, segments: u32) -> Option<Self> {
        let mut next = self.at(Stage::Moving);
        let mut used = self.active().to_vec();
        used.truncate(segments as usize);
        // Those that were in use before come back first: they are there, and know orders.
        let known = (0..self.segments.len() as u32).filter(|number| !self.active().contains(number));
        let missing = (segments as usize).saturating_sub(used.len());
        used.extend(known.take(missing));
        while used.len() < segments as usize {
            let number = next.segments.len() as u32;
            next.segments.push(Segment { place: number % self.places, share: 0 });
            used.push(number);
        }
        used.sort_unstable();
        next.mappings.push(used);
        (next.mappings.len() <= MAPPINGS).then_some(next)
    }

    /// The segments in use.
    pub(super) fn active(&self) -> &[u32] {
        self.mappings.last().map_or(&[], Vec::as_slice)
    }

    /// The number of the mapping in force.
    pub(super) fn fence(&self) -> u64 {
        if self.stage == Stage::Closed { CLOSED } else { self.mappings.len() as u64 }
    }

    /// What decides where an order belongs: a number that is the same for all clients of this sale, for ever. It is keyed with
    /// the number of the sale, so that buyers who choose the ids of their orders cannot send all of them to one segment.
    pub(super) fn point_of(&self, order: &str) -> Point {
        let mut hasher = SipHasher24::new_with_keys(self.sale, 0);
        hasher.write(order.as_bytes());
        Point(hasher.finish())
    }

    /// The segment that an order belongs to.
    pub(super) fn home(&self, order: Point) -> u32 {
        of(order, self.active())
    }

    /// Other segments that it belonged to before.
    pub(super) fn earlier(&self, order: Point) -> Vec<u32> {
        let [before @ .., last] = &*self.mappings else { return Vec::new() };
        let home = of(order, last);
        let mut homes: Vec<_> =
            before.iter().map(|mapping| of(order, mapping)).filter(|earlier| *earlier != home).collect();
        homes.sort_unstable();
        homes.dedup();
        homes
    }

    pub(super) fn to_text(&self) -> String {
        let stage = match self.stage {
            Stage::Filling => "filling",
            Stage::Selling => "selling",
            Stage::Moving => "moving",
            Stage::Closed => "closed",
        };
        let mut text = format!(
            "{VERSION} {} {stage} {:016x} {} {}\n",
            self.version, self.sale, self.initial, self.places
        );
        for Segment { place, share } in &self.segments {
            // Writing to a string does not fail.
            let _ = write!(text, "{place}:{share} ");
        }
        for mapping in &self.mappings {
            text.push('\n');
            let numbers: Vec<_> = mapping.iter().map(u32::to_string).collect();
            text.push_str(&numbers.join(" "));
        }
        text
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut head = lines.next()?.split(' ');
        if head.next()? != VERSION {
            return None;
        }
        let version = head.next()?.parse().ok()?;
        let stage = match head.next()? {
            "filling" => Stage::Filling,
            "selling" => Stage::Selling,
            "moving" => Stage::Moving,
            "closed" => Stage::Closed,
            _ => return None,
        };
        let sale = u64::from_str_radix(head.next()?, 16).ok()?;
        let (initial, places) = (head.next()?.parse().ok()?, head.next()?.parse().ok()?);
        let segment = |text: &str| {
            let (place, share) = text.split_once(':')?;
            Some(Segment { place: place.parse().ok()?, share: share.parse().ok()? })
        };
        let segments = lines.next()?.split_whitespace().map(segment).collect::<Option<Vec<_>>>()?;
        let numbers =
            |line: &str| line.split(' ').map(|text| text.parse().ok()).collect::<Option<Vec<u32>>>();
        let mappings = lines.map(numbers).collect::<Option<Vec<_>>>()?;
        let fits = |number: &u32| (*number as usize) < segments.len();
        let sound = segments.iter().all(|segment| segment.place < places)
            && !mappings.is_empty()
            && mappings.iter().all(|mapping| !mapping.is_empty() && mapping.iter().all(fits));
        sound.then_some(Self { version, sale, stage, initial, places, segments, mappings })
    }
}

/// One of `parts` shares of `n`.
pub(super) fn share(n: u64, parts: u32, number: u32) -> u64 {
    let parts = u64::from(parts);
    n / parts + u64::from(u64::from(number) < n % parts)
}

/// Where an order belongs, whatever the segments are: see [`Plan::point_of`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Point(u64);

/// The one of some segments with the highest number for this order: when a segment comes or goes, only
/// orders of that one move.
fn of(Point(order): Point, segments: &[u32]) -> u32 {
    let weight = |segment: &u32| mix(order ^ mix(u64::from(*segment) + 1));
    segments.iter().copied().max_by_key(weight).unwrap_or(0)
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let plan = Plan::new(7, 1_003, 5, 2).at(Stage::Selling).resized(8).unwrap().resized(3).unwrap();
        assert_eq!(Plan::from_text(&plan.to_text()), Some(plan));
        assert!(Plan::from_text("2 1 selling 7 10 1\n0:10 \n0").is_some());
        for bad in [
            "",
            "2",
            "2 1 selling 7 10 1\n\n0",
            "2 1 selling 7 10 1\n0:10 \n1",
            "3 1 selling 7 10 1\n0:10 \n0",
            "2\n1 selling 7 10 1\n0:10 \n0",
        ] {
            assert_eq!(Plan::from_text(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn shares_are_all_of_it_and_differ_by_one() {
        let plan = Plan::new(7, 1_003, 5, 2);
        let shares: Vec<_> = plan.segments.iter().map(|segment| segment.share).collect();
        assert_eq!(shares, [201, 201, 201, 200, 200]);
    }

    #[test]
    fn orders_spread_evenly_and_few_of_them_move() {
        let plan = Plan::new(7, 1_000, 5, 1);
        let grown = plan.resized(6).unwrap();
        let mut counts = [0_u32; 5];
        let mut moved = 0;
        for n in 0..10_000 {
            let order = plan.point_of(&format!("order-{n}"));
            let (before, after) = (plan.home(order), grown.home(order));
            counts[before as usize] += 1;
            assert!(
                after == before && grown.earlier(order).is_empty()
                    || after == 5 && grown.earlier(order) == [before]
            );
            moved += u32::from(after != before);
        }
        assert!(counts.iter().all(|count| (1_850..2_150).contains(count)), "{counts:?}");
        assert!((1_500..1_850).contains(&moved), "{moved}");
    }

    #[test]
    fn orders_belong_elsewhere_in_another_sale() {
        let (one, other) = (Plan::new(7, 1_000, 8, 1), Plan::new(8, 1_000, 8, 1));
        // Those that a buyer chose so that all of them go to one segment.
        let chosen = (0..4_000).map(|n| format!("order-{n}")).filter(|id| one.home(one.point_of(id)) == 3);
        let mut counts = [0_u32; 8];
        chosen.for_each(|id| counts[other.home(other.point_of(&id)) as usize] += 1);
        assert!(counts.iter().all(|count| (30..100).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_segment_that_was_in_use_comes_back() {
        let plan = Plan::new(7, 100, 4, 1).resized(2).unwrap().resized(5).unwrap();
        assert_eq!(plan.mappings, [vec![0, 1, 2, 3], vec![0, 1], vec![0, 1, 2, 3, 4]]);
        assert_eq!((plan.segments.len(), plan.fence()), (5, 3));
        assert_eq!(plan.at(Stage::Closed).fence(), CLOSED);
    }
}
