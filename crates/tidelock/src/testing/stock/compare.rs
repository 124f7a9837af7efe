//! Random steps on a store and on the model: the same answers.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::wall_micros,
    model::name::Name,
    stock::{Answer, CLOSED, End, Ledger, OrderId, SegmentId, Step, StockStore, TransferId},
    testing::rng::Rng,
};

/// Longer than any comparison takes.
const LONG: Duration = Duration::from_secs(3_600);
/// Over before the next step.
const SHORT: Duration = Duration::from_micros(1);

/// Compares a store with the model by the steps of a seed, on segments of this item.
///
/// # Errors
/// The first difference, with the steps before it.
pub async fn run(store: &Arc<dyn StockStore>, item: &str, seed: u64, steps: u32) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let name = Name::new(item).map_err(|error| error.to_string())?;
    let mut model: [Option<Ledger>; 2] = [None, None];
    let mut done = Vec::new();
    for _ in 0..steps {
        let (number, step) = (rng.below(2) as usize, random(&mut rng));
        // Some are of a sale before, or of the next.
        let sale = 1 + rng.below(12) / 11;
        let segment = SegmentId { item: name.clone(), number: number as u32 };
        let expected = Ledger::apply(&mut model[number], sale, &step, wall_micros());
        let found = store.apply(&segment, sale, &step).await.map_err(|failure| failure.to_string())?;
        done.push(format!("{number} of sale {sale}: {step:?} -> {found:?}"));
        if ageless(&found) != ageless(&expected) {
            return Err(format!("seed {seed}: the model says {expected:?} after\n{}", done.join("\n")));
        }
        if matches!(&step, Step::Take { hold: Some(SHORT), .. }) {
            // The clocks of the two may differ by what a step takes.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    Ok(())
}

/// Without what depends on when it was asked.
fn ageless(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    if let Answer::Counts(counts) = &mut answer {
        counts.lent.iter_mut().for_each(|lent| lent.age = Duration::ZERO);
    }
    answer
}

fn random(rng: &mut Rng) -> Step {
    let order = OrderId::from(format!("order-{}", rng.below(12)));
    let transfer = TransferId(u128::from(rng.below(8)) << 64 | 7);
    let fence = if rng.chance(10) { CLOSED } else { 1 + rng.below(200) / 100 + rng.below(300) / 299 };
    match rng.below(100) {
        0..8 => Step::Fill { fence: 1, n: rng.below(30) },
        8..45 => Step::Take {
            fence,
            order,
            n: rng.below(5),
            hold: match rng.below(6) {
                0 => Some(SHORT),
                1 => Some(LONG),
                _ => None,
            },
            brings: rng.chance(150).then(|| (transfer, 1 + rng.below(4))),
        },
        45..65 => Step::End { fence, order, how: rng.pick(&[End::GiveBack, End::Confirm, End::Void]) },
        65..76 => Step::Lend { transfer, n: rng.below(6), to: rng.below(2) as u32 },
        76..84 => Step::Bring { transfer, n: rng.below(4) },
        84..90 => Step::Settle { transfer },
        90..99 => Step::Look,
        _ if rng.chance(200) => Step::Close { keep: LONG },
        _ => Step::End { fence: CLOSED, order, how: End::GiveBack },
    }
}
