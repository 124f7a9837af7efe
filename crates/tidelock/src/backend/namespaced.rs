//! A store as seen through a namespace: above it names are short, below it they begin with the namespace.

use std::sync::Arc;

use super::{
    Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Failure, Follow, FollowAll, Leave,
    Left, LockView, News, Scope, Standing,
};
use crate::{
    error::{Error, Result},
    model::name::{MAX_NAME_BYTES, Name},
};

/// A backend whose names all begin with a namespace, which its users do not see.
///
/// [`Builder::namespace`](crate::Builder::namespace) is the usual way to get one. Different namespaces on one
/// store have different locks. A client without a namespace sees the full names: `a` in the namespace `shop/`
/// is the lock `shop/a`.
#[derive(Debug)]
pub struct Namespaced {
    inner: Arc<dyn Backend>,
    namespace: Arc<str>,
    abilities: Abilities,
}

impl Namespaced {
    /// Puts a namespace in front of all names of a backend.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) when the namespace is empty, contains a control
    /// character, or leaves no room for a name.
    pub fn new(inner: Arc<dyn Backend>, namespace: &str) -> Result<Self> {
        let mut abilities = inner.abilities().clone();
        let most = abilities.max_name.min(MAX_NAME_BYTES);
        check(namespace, most)?;
        abilities.max_name = most - namespace.len();
        Ok(Self { inner, namespace: namespace.into(), abilities })
    }

    fn below(&self, name: &Name) -> Result<Name, Failure> {
        // The engine has checked the length, except for names that come with tickets.
        Name::new(&format!("{}{name}", self.namespace)).map_err(|error| Failure::denied(error.to_string()))
    }

    fn claim_below(&self, claim: &Claim) -> Result<Arc<Claim>, Failure> {
        Ok(Arc::new(Claim { name: self.below(&claim.name)?, ..claim.clone() }))
    }
}

/// Returns the name within the namespace; `None` if it is not in there.
fn above(namespace: &str, name: &Name) -> Option<Name> {
    Name::new(name.as_str().strip_prefix(namespace)?).ok()
}

/// Checks a namespace for names that have at most `max_name` bytes together with it.
pub(crate) fn check(namespace: &str, max_name: usize) -> Result<()> {
    let text = if namespace.is_empty() {
        "the namespace is empty: leave it out, or write one such as \"shop/\"".to_owned()
    } else if namespace.chars().any(char::is_control) {
        "the namespace has a control character: leave it out".to_owned()
    } else if namespace.len() >= max_name {
        format!(
            "the namespace has {} bytes, and names together with it have at most {max_name}: shorten it",
            namespace.len()
        )
    } else {
        return Ok(());
    };
    Err(Error::invalid_option(text))
}

impl Backend for Namespaced {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn client_id(&self) -> ClientId {
        self.inner.client_id()
    }

    fn concerns(&self) -> Vec<String> {
        self.inner.concerns()
    }

    fn notes(&self) -> Vec<String> {
        self.inner.notes()
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        match self.claim_below(claim) {
            Ok(claim) => self.inner.enter(&claim, ask),
            Err(failure) => Call::now(Err(failure)),
        }
    }

    fn wait(&self) -> Call<News> {
        let (inner, namespace) = (Arc::clone(&self.inner), Arc::clone(&self.namespace));
        Call::later(async move {
            loop {
                let news = inner.wait().await?;
                // Claims of this client have no other names, so nothing is ever left out here.
                if let Some(name) = above(&namespace, &news.name) {
                    return Ok(News { name, ..news });
                }
            }
        })
    }

    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
        match claims.iter().map(|claim| self.claim_below(claim)).collect::<Result<Vec<_>, _>>() {
            Ok(claims) => self.inner.renew(&claims),
            Err(failure) => Call::now(Err(failure)),
        }
    }

    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<Left> {
        match self.below(name) {
            Ok(name) => self.inner.leave(&name, id, why),
            Err(failure) => Call::now(Err(failure)),
        }
    }

    fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
        let scope = match scope {
            Scope::All => Ok(Scope::All),
            Scope::Names(names) => {
                names.iter().map(|name| self.below(name)).collect::<Result<_, _>>().map(Scope::Names)
            }
        };
        let looking = match scope {
            Ok(scope) => self.inner.look(&scope),
            Err(failure) => return Call::now(Err(failure)),
        };
        let namespace = Arc::clone(&self.namespace);
        Call::later(async move {
            let views = looking.await?.into_iter();
            Ok(views
                .filter_map(|view| Some(LockView { name: above(&namespace, &view.name)?, ..view }))
                .collect())
        })
    }
    fn follow(&self, name: &Name) -> Option<Follow> {
        self.inner.follow(&self.below(name).ok()?)
    }

    fn follow_all(&self) -> Option<FollowAll> {
        let namespace = Arc::clone(&self.namespace);
        Some(self.inner.follow_all()?.renamed(move |name| above(&namespace, name)))
    }
}
