//! Looking: what people see of locks.

use futures_util::future::try_join_all;
use redis::Value;

use super::{codec, commands::call, scripts::LOOK, store::RedisStore};
use crate::{
    backend::{Failure, LockView, Scope},
    model::name::Name,
};

/// How many names are looked at at once, each by a script.
const AT_ONCE: usize = 64;
/// From so many names on they are read together: a script for each takes a server some 10 µs.
const TOGETHER: usize = 8;

impl RedisStore {
    /// The locks of a scope, as far as they are in use.
    pub(crate) async fn view(&self, scope: &Scope) -> Result<Vec<LockView>, Failure> {
        let all;
        let names = match scope {
            Scope::Names(names) => names,
            Scope::All => {
                let views = self.view_all().await?;
                if self.fleet.is_none() {
                    return Ok(views);
                }
                all = views.into_iter().map(|view| view.name).collect::<Vec<_>>();
                &all
            }
        };
        if names.len() >= TOGETHER
            && *scope != Scope::All
            && let Some(views) = self.view_together(names).await?
        {
            return Ok(views);
        }
        let mut views = Vec::new();
        for some in names.chunks(AT_ONCE) {
            let look = |name| self.view_name(name, *scope == Scope::All);
            views.extend(try_join_all(some.iter().map(look)).await?);
        }
        Ok(views.into_iter().flatten().collect())
    }

    /// One lock. Of one that is `listed`, nobody asked for its name.
    async fn view_name(&self, name: &Name, listed: bool) -> Result<Option<LockView>, Failure> {
        if let Some(fleet) = &self.fleet {
            return self.look_together(fleet, name, listed).await;
        }
        let seen = self.see(&self.common.space.key(name)).await?;
        let Some((now, head)) = codec::seen(&seen)? else { return Ok(None) };
        Ok(codec::view(name, head, codec::store_time(now)))
    }

    /// What is kept at a key, wherever that is, and the time there.
    pub(super) async fn see(&self, key: &str) -> Result<Value, Failure> {
        if self.scripts_are_off() {
            return self.look_without_scripts(key).await;
        }
        self.ask(&LOOK, key, &|form| call(&LOOK, form, key)).await
    }
}
