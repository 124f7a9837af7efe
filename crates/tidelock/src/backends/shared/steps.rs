//! Enters and leaves, as questions that may go together.

use std::{collections::HashSet, sync::Arc};

use super::{
    crowded::Crowded,
    together::{Answer, Joined, Together},
};
use crate::{
    backend::{Call, Claim, ClaimId, Failure},
    model::name::Name,
};

/// An enter or a leave.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Enter(Arc<Claim>),
    Leave(Name, ClaimId),
}

impl Step {
    pub(crate) fn name(&self) -> &Name {
        match self {
            Self::Enter(claim) => &claim.name,
            Self::Leave(name, _) => name,
        }
    }

    pub(crate) fn id(&self) -> ClaimId {
        match self {
            Self::Enter(claim) => claim.id,
            Self::Leave(_, id) => *id,
        }
    }

    /// The claim that enters.
    pub(crate) fn entering(&self) -> Option<&Claim> {
        match self {
            Self::Enter(claim) => Some(claim),
            Self::Leave(..) => None,
        }
    }
}

/// The enters and leaves of one client.
#[derive(Debug)]
pub(crate) struct Steps<A: Answer> {
    together: Together<Step, A>,
    crowded: Crowded,
}

impl<A: Answer> Steps<A> {
    /// Must be called within the runtime of the client.
    pub(crate) fn new(ask: impl Fn(Vec<Step>) -> Call<Vec<Option<A>>> + Send + Sync + 'static) -> Self {
        Self { together: Together::new(ask), crowded: Crowded::default() }
    }

    /// Takes a step together with others, if a call is under way. See [`Together::join`].
    pub(crate) async fn join(&self, step: Step, may_arrive: &mut bool) -> Result<Joined<Step, A>, Failure> {
        if self.crowded.goes_alone(step.name()) {
            return Ok(Joined::Open);
        }
        let mut name = None;
        let question = || {
            name = Some(step.name().clone());
            step
        };
        let joined = self.together.join(question, may_arrive).await;
        if let (Ok(Joined::Open), Some(name)) = (&joined, &name) {
            self.crowded.note(name);
        }
        joined
    }
}

/// The numbers of those steps that go, in the order of their names. Of several for one name, the first: what becomes of the
/// others depends on it.
pub(crate) fn one_for_each_name(steps: &[Step]) -> Vec<usize> {
    let mut names = HashSet::with_capacity(steps.len());
    let mut chosen: Vec<usize> =
        (0..steps.len()).filter(|index| names.insert(steps[*index].name())).collect();
    chosen.sort_by_key(|index| steps[*index].name());
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_steps_for_one_name_the_first_goes_and_names_are_in_order() {
        let step = |name: &str, id| Step::Leave(Name::new(name).unwrap(), ClaimId::from_u128(id));
        let steps = [step("b", 1), step("a", 2), step("b", 3), step("c", 4), step("a", 5)];
        assert_eq!(one_for_each_name(&steps), [1, 0, 3]);
    }
}
