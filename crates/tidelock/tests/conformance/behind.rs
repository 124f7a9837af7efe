//! Stores that are far away, or that make a mistake on purpose.

use std::{sync::Arc, time::Duration};

use tidelock::{
    Name,
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Failure, Follow, Leave, Left,
        LockView, News, Scope, Share, Standing, What,
    },
};

/// What is between a client and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Here,
    /// A network.
    Far,
    /// A network, and a store that says only that a claim should ask, before anything else arrives.
    Asks,
    /// A namespace.
    Namespaced,
    /// Something that makes a mistake on purpose.
    Wrong(Mistake),
}

/// What a store may get wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// A try stays in line.
    TryStays,
    /// Permits are counted without their weights.
    WeightsIgnored,
    /// An owner is not known again.
    OwnersForgotten,
    /// Claims live for longer than they asked for.
    LeaseTooLong,
    /// Claims live for less than they asked for.
    LeaseTooShort,
    /// A renewal takes a new place for a claim that is gone.
    RenewalRevives,
    /// A batch is answered in another order.
    AnswersReversed,
    /// Every grant has the same epoch.
    EpochStandsStill,
    /// A claim that is evicted is not told.
    EvictionSilent,
    /// A claim that becomes a holder is not told.
    GrantSilent,
    /// Some claims that leave stay.
    LeaveForgotten,
    /// Names are compared without regard to case.
    CaseFolded,
}

impl Mistake {
    pub(crate) const ALL: [Self; 12] = [
        Self::TryStays,
        Self::WeightsIgnored,
        Self::OwnersForgotten,
        Self::LeaseTooLong,
        Self::LeaseTooShort,
        Self::RenewalRevives,
        Self::AnswersReversed,
        Self::EpochStandsStill,
        Self::EvictionSilent,
        Self::GrantSilent,
        Self::LeaveForgotten,
        Self::CaseFolded,
    ];

    /// The cases that are about it.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::TryStays => "exclusion",
            Self::WeightsIgnored => "permits",
            Self::OwnersForgotten => "reentry",
            Self::LeaseTooLong | Self::LeaseTooShort => "lease",
            Self::RenewalRevives | Self::EvictionSilent => "loss",
            Self::AnswersReversed => "renewal",
            Self::EpochStandsStill | Self::GrantSilent => "fencing",
            Self::LeaveForgotten => "cleanup",
            Self::CaseFolded => "names",
        }
    }
}

/// A store behind something.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    pub(crate) inner: Arc<dyn Backend>,
    pub(crate) way: Way,
}

impl Behind {
    fn does(&self, mistake: Mistake) -> bool {
        self.way == Way::Wrong(mistake)
    }

    /// One way of a round trip.
    async fn travel(&self) {
        if matches!(self.way, Way::Far | Way::Asks) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn twist(&self, claim: &Claim) -> Arc<Claim> {
        let mut claim = claim.clone();
        match (self.way, claim.share) {
            (Way::Wrong(Mistake::WeightsIgnored), Share::Permits { of, .. }) => {
                claim.share = Share::Permits { n: 1, of };
            }
            (Way::Wrong(Mistake::OwnersForgotten), _) => claim.owner = None,
            (Way::Wrong(Mistake::LeaseTooLong), _) => claim.ttl *= 2,
            (Way::Wrong(Mistake::LeaseTooShort), _) => claim.ttl /= 4,
            _ => {}
        }
        claim.name = self.fold(&claim.name);
        claim.into()
    }

    fn fold(&self, name: &Name) -> Name {
        let text = name.as_str();
        if self.does(Mistake::CaseFolded) {
            Name::new(&text.to_lowercase()).expect("a name")
        } else {
            name.clone()
        }
    }

    async fn revive(&self, claim: &Arc<Claim>) -> Result<Standing, Failure> {
        Ok(match self.inner.enter(claim, Ask::Queue).await? {
            Entered::Held(grant) => Standing::Held(grant),
            Entered::Waiting(place) => Standing::Waiting(place),
            _ => Standing::Gone,
        })
    }
}

impl Backend for Behind {
    fn abilities(&self) -> &Abilities {
        self.inner.abilities()
    }

    fn client_id(&self) -> ClientId {
        self.inner.client_id()
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        let (this, claim) = (self.clone(), self.twist(claim));
        let ask = if self.does(Mistake::TryStays) { Ask::Queue } else { ask };
        Call::later(async move {
            this.travel().await;
            let mut answer = this.inner.enter(&claim, ask).await?;
            this.travel().await;
            if let Entered::Held(grant) = &mut answer
                && this.does(Mistake::EpochStandsStill)
            {
                grant.epoch = 1;
            }
            Ok(answer)
        })
    }

    fn wait(&self) -> Call<News> {
        let this = self.clone();
        Call::later(async move {
            loop {
                let mut news = this.inner.wait().await?;
                match (this.way, &news.what) {
                    (Way::Asks, What::Granted(_)) => news.what = What::Ask,
                    _ => this.travel().await,
                }
                if !this.does(Mistake::GrantSilent) {
                    return Ok(news);
                }
            }
        })
    }

    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
        let this = self.clone();
        let claims: Vec<_> = claims.iter().map(|claim| self.twist(claim)).collect();
        Call::later(async move {
            this.travel().await;
            let mut answers = this.inner.renew(&claims).await?;
            this.travel().await;
            if this.does(Mistake::AnswersReversed) {
                answers.reverse();
            }
            for (claim, answer) in claims.iter().zip(&mut answers) {
                if this.does(Mistake::RenewalRevives) && *answer == Standing::Gone {
                    *answer = this.revive(claim).await?;
                }
            }
            Ok(answers)
        })
    }

    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<Left> {
        let (this, name) = (self.clone(), self.fold(name));
        let why = if self.does(Mistake::EvictionSilent) { Leave::Done } else { why };
        Call::later(async move {
            this.travel().await;
            let forgotten = this.does(Mistake::LeaveForgotten) && id.serial().is_multiple_of(3);
            let left = if forgotten { Left::Removed } else { this.inner.leave(&name, id, why).await? };
            this.travel().await;
            Ok(left)
        })
    }

    fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
        let (this, scope) = (self.clone(), scope.clone());
        Call::later(async move {
            this.travel().await;
            let seen = this.inner.look(&scope).await?;
            this.travel().await;
            Ok(seen)
        })
    }
    fn follow(&self, name: &Name) -> Option<Follow> {
        self.inner.follow(&self.fold(name))
    }
}
