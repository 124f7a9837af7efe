//! Enters and leaves that go together in one call and one commit, and renewals that do. What such a call leaves open is asked
//! with the verbs.

use std::{fmt::Write as _, sync::Arc};

use super::{
    codec::{column, in_numbers, standing, unreadable},
    link::Link,
};
use crate::{
    backend::{Call, Claim, ClientId, Failure, Standing},
    backends::shared::{
        steps::{Step, Steps, one_for_each_name},
        units::micros,
    },
};

/// What became of a step that went with others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// The epoch of an enter that was granted at once. Of a leave it says that the claim was removed, and nothing else.
    /// Nothing: it has to be called alone.
    pub(super) epoch: Option<i64>,
    /// Whether an earlier try may have done it as well, and may still arrive.
    pub(super) is_repeated: bool,
}

pub(super) type Together = Steps<Done>;

/// The enters and leaves of a client.
pub(super) fn together(link: &Arc<Link>, client: ClientId) -> Together {
    let link = Arc::clone(link);
    Together::new(move |steps| {
        let link = Arc::clone(&link);
        Call::later(async move { ask(&link, client, &steps).await })
    })
}

async fn ask(link: &Link, client: ClientId, steps: &[Step]) -> Result<Vec<Option<Done>>, Failure> {
    let values = vec![client.get().into(), text(steps, client).into()];
    let answer = link.call_for("CALL tidelock_together(?, ?)", values, None).await?;
    let done: String = column(answer.rows.first().ok_or_else(unreadable)?, 0)?;
    let is_repeated = answer.is_repeated;
    let open = is_repeated.then_some(Done { epoch: None, is_repeated });
    let mut answers = vec![open; steps.len()];
    for one in done.split_terminator(';') {
        let (number, epoch) = one.split_once(' ').ok_or_else(unreadable)?;
        let number = number.parse::<usize>().map_err(|_| unreadable())?;
        let epoch = epoch.parse().map_err(|_| unreadable())?;
        *answers.get_mut(number).ok_or_else(unreadable)? = Some(Done { epoch: Some(epoch), is_repeated });
    }
    Ok(answers)
}

/// The steps as `tidelock_together` reads them. Texts are in hexadecimal digits, so that nothing depends on character sets.
fn text(steps: &[Step], client: ClientId) -> String {
    let mut text = String::from("[");
    for number in one_for_each_name(steps) {
        let step = &steps[number];
        // A claim of another client can be evicted, but not left.
        if step.id().client() != client {
            continue;
        }
        let comma = if text.len() > 1 { "," } else { "" };
        let _ = write!(text, "{comma}[{number},\"{}\",{}", hex(step.name().as_str()), step.id().serial());
        if let Some(claim) = step.entering() {
            let (weight, total) = in_numbers(claim.share);
            let owner = claim.owner.as_ref().map_or("", |owner| owner.as_str());
            let (owner, label, ttl) = (hex(owner), hex(&claim.label), micros(claim.ttl));
            let _ = write!(text, ",{weight},{total},\"{owner}\",\"{label}\",{ttl}");
        }
        text.push(']');
    }
    text.push(']');
    text
}

/// How those of some claims stand that are renewed without a rule. Those of other clients are not.
pub(super) async fn renew(
    link: &Link,
    client: ClientId,
    claims: &[Arc<Claim>],
) -> Result<Vec<Option<Standing>>, Failure> {
    let values = vec![client.get().into(), renewals(claims, client).into()];
    let rows = link.call("CALL tidelock_renew_together(?, ?)", values).await?;
    renewed(&column::<String>(rows.first().ok_or_else(unreadable)?, 0)?, claims.len())
}

/// The claims as `tidelock_renew_together` reads them.
fn renewals(claims: &[Arc<Claim>], client: ClientId) -> String {
    let mut text = String::from("[");
    for (number, claim) in claims.iter().enumerate().filter(|(_, claim)| claim.id.client() == client) {
        let comma = if text.len() > 1 { "," } else { "" };
        let _ = write!(text, "{comma}[{number},\"{}\",{}]", hex(claim.name.as_str()), claim.id.serial());
    }
    text.push(']');
    text
}

/// What it answers: the number of each claim that was renewed, and how it stands.
fn renewed(text: &str, count: usize) -> Result<Vec<Option<Standing>>, Failure> {
    let mut standings = vec![None; count];
    for one in text.split_terminator(';') {
        let (number, stands) = one.split_once(' ').ok_or_else(unreadable)?;
        let place = number.parse().ok().and_then(|number: usize| standings.get_mut(number));
        *place.ok_or_else(unreadable)? = Some(standing(stands).ok_or_else(unreadable)?);
    }
    Ok(standings)
}

fn hex(text: &str) -> String {
    let mut digits = String::with_capacity(2 * text.len());
    for byte in text.bytes() {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        backend::{ClaimId, Share},
        backends::shared::answers::{grant, place},
        model::name::Name,
    };

    #[test]
    fn steps_are_told_in_the_order_of_their_names_and_only_those_of_this_client() {
        let client = ClientId::from_u64(7);
        let name = |name: &str| Name::new(name).unwrap();
        let share = Share::Permits { n: 2, of: 3 };
        let claim =
            Claim::new(ClaimId::new(client, 5), name("b"), share, Duration::from_secs(1)).label("é\"");
        let other = ClaimId::new(ClientId::from_u64(8), 1);
        let steps = [
            Step::Enter(Arc::new(claim)),
            Step::Leave(name("c"), other),
            Step::Leave(name("a"), ClaimId::new(client, 6)),
        ];
        assert_eq!(text(&steps, client), r#"[[2,"61",6],[0,"62",5,2,3,"","c3a922",1000000]]"#);
    }

    #[test]
    fn renewals_are_told_by_their_places_and_only_those_of_this_client() {
        let client = ClientId::from_u64(7);
        let claim = |client, serial, name| {
            let id = ClaimId::new(ClientId::from_u64(client), serial);
            let ttl = Duration::from_secs(1);
            Arc::new(Claim::new(id, Name::new(name).unwrap(), Share::Exclusive, ttl))
        };
        let claims = [claim(7, 5, "a"), claim(8, 1, "b"), claim(7, u64::MAX, "é")];
        assert_eq!(renewals(&claims, client), r#"[[0,"61",5],[2,"c3a9",18446744073709551615]]"#);
        let (held, waits) = (grant(17, 30_000_000, 2), place(1, -1));
        let expected = [Some(Standing::Waiting(waits)), None, Some(Standing::Held(held))];
        assert_eq!(renewed("2 H 17 30000000 2;0 W 1 -1", 3).unwrap(), expected);
        assert_eq!(renewed("", 1).unwrap(), [None]);
        for nonsense in ["x", "0", "1 H 1 1 1", "0 H 1", "-1 G"] {
            assert!(renewed(nonsense, 1).is_err(), "{nonsense}");
        }
    }
}
