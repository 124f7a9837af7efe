//! A store with a defect: what the comparison with the model has to find.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    backend::Call,
    model::name::Name,
    stock::{Answer, CLOSED, SegmentId, Standing, Step, StockStore},
};

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Steps are made whatever sale they name.
    AnySale,
    /// An order that is known is told to have taken what it asks for now.
    AmountAsAsked,
    /// A question by a caller that takes the segment for closed closes it.
    QuestionCloses,
    /// An order that is known for another amount takes again.
    AmountIsPartOfTheId,
}

impl Defect {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::AnySale, Self::AmountAsAsked, Self::QuestionCloses, Self::AmountIsPartOfTheId];
}

/// A store with one of the defects.
#[derive(Debug)]
pub struct Defective {
    inner: Arc<dyn StockStore>,
    defect: Defect,
    sales: Mutex<HashMap<SegmentId, u64>>,
}

impl Defective {
    /// Puts the defect in front of a store.
    pub fn new(inner: Arc<dyn StockStore>, defect: Defect) -> Self {
        Self { inner, defect, sales: Mutex::default() }
    }
}

impl StockStore for Defective {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn plan(&self, item: &Name) -> Call<Option<String>> {
        self.inner.plan(item)
    }

    fn replan(&self, item: &Name, before: Option<&str>, text: &str, keep: Option<Duration>) -> Call<bool> {
        self.inner.replan(item, before, text, keep)
    }

    fn apply(&self, segment: &SegmentId, sale: u64, step: &Step) -> Call<Answer> {
        let (inner, segment, mut step) = (Arc::clone(&self.inner), segment.clone(), step.clone());
        match (self.defect, &mut step) {
            (Defect::AnySale, _) => {
                let mut sales = self.sales.lock().unwrap_or_else(PoisonError::into_inner);
                let is_fill = matches!(step, Step::Fill { .. });
                let known = sales.get(&segment).copied();
                let first = if is_fill { *sales.entry(segment.clone()).or_insert(sale) } else { sale };
                inner.apply(&segment, known.unwrap_or(first), &step)
            }
            (Defect::AmountAsAsked, Step::Take { n: asked @ 1.., .. }) => {
                let asked = *asked;
                Call::later(async move {
                    Ok(match inner.apply(&segment, sale, &step).await? {
                        Answer::Order(Standing::Taken(_)) => Answer::Order(Standing::Taken(asked)),
                        answer => answer,
                    })
                })
            }
            (Defect::QuestionCloses, Step::Take { fence: CLOSED, .. } | Step::End { fence: CLOSED, .. }) => {
                Call::later(async move {
                    inner.apply(&segment, sale, &Step::Close { keep: Duration::from_secs(3_600) }).await?;
                    inner.apply(&segment, sale, &step).await
                })
            }
            (Defect::AmountIsPartOfTheId, Step::Take { order, n: 1.., .. }) => {
                let (first, again) = (order.clone(), format!("{order} again"));
                Call::later(async move {
                    let answer = inner.apply(&segment, sale, &step).await?;
                    let (Answer::Order(Standing::Taken(before)), Step::Take { order, n, .. }) =
                        (&answer, &mut step)
                    else {
                        return Ok(answer);
                    };
                    if *before == *n {
                        return Ok(answer);
                    }
                    debug_assert_eq!(*order, first, "it asks for the same order");
                    *order = again.into();
                    inner.apply(&segment, sale, &step).await
                })
            }
            _ => inner.apply(&segment, sale, &step),
        }
    }
}
