//! Answers as stores give them that have only numbers.

use std::time::Duration;

use super::store::{Answer, Counts, Lent, Standing, TransferId};

/// Reads the answers to some steps on orders: three numbers for each, of which the last may mean nothing.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn read_orders(numbers: &[u64]) -> Option<Vec<Answer>> {
    let (answers, []) = numbers.as_chunks::<3>() else { return None };
    answers.iter().map(|answer| read(answer)).collect()
}

/// Reads `0` no such segment, `1 standing n` of an order by a letter's number, `2 remaining pending` not enough,
/// `3 mapping` the caller's is old, `4 n pending` lent, `5` done, `6 1` brought before, `7` another sale, and
/// `10 remaining sold held returned`, followed for each transfer by both halves of its id, how many, where to, its age.
pub(crate) fn read(numbers: &[u64]) -> Option<Answer> {
    Some(match *numbers {
        [0, ..] => Answer::Absent,
        [1, kind, n] => Answer::Order(match u8::try_from(kind).ok()? {
            b't' => Standing::Taken(n),
            b'h' => Standing::Held(n),
            b'r' => Standing::Returned(n),
            b'v' => Standing::Void,
            b'u' => Standing::Unknown,
            _ => return None,
        }),
        [2, remaining, pending] => Answer::Short { remaining, pending },
        [3, fence, ..] => Answer::Stale(fence),
        [4, n, pending] => Answer::Lent { n, pending },
        [5, ..] => Answer::Done,
        [6, before] => Answer::Brought(before == 1),
        [7, ..] => Answer::OtherSale,
        [10, remaining, sold, held, returned, ref lent @ ..] => {
            let mut lent = lent.chunks(5).map(transfer).collect::<Option<Vec<_>>>()?;
            lent.sort();
            Answer::Counts(Counts { remaining, sold, held, returned, lent })
        }
        _ => return None,
    })
}

fn transfer(numbers: &[u64]) -> Option<Lent> {
    let [high, low, n, to, age] = *numbers else { return None };
    Some(Lent {
        transfer: TransferId(u128::from(high) << 64 | u128::from(low)),
        n,
        to: u32::try_from(to).ok()?,
        age: Duration::from_micros(age),
    })
}
