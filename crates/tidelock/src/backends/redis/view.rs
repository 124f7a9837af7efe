//! Looking: what people see of locks.

use futures_util::future::try_join_all;
use redis::Value;

use super::{codec, commands::call, scripts::LOOK, store::RedisStore};
use crate::{
    backend::{Failure, LockView, Scope},
    model::name::Name,
};

/// How many names are looked at at once.
const AT_ONCE: usize = 64;

impl RedisStore {
    /// The locks of a scope, as far as they are in use.
    pub(crate) async fn view(&self, scope: &Scope) -> Result<Vec<LockView>, Failure> {
        let names = match scope {
            Scope::Names(names) => names,
            Scope::All => return self.view_all().await,
        };
        let mut views = Vec::new();
        for some in names.chunks(AT_ONCE) {
            views.extend(try_join_all(some.iter().map(|name| self.view_name(name))).await?);
        }
        Ok(views.into_iter().flatten().collect())
    }

    async fn view_name(&self, name: &Name) -> Result<Option<LockView>, Failure> {
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
