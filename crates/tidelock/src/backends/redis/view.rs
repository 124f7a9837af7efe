//! Looking: what people see of locks.

use super::{codec, commands::call, errors::classify, forms, scripts::LOOK, store::RedisStore};
use crate::{
    backend::{Failure, LockView, Scope},
    model::name::Name,
};

impl RedisStore {
    /// The locks of a scope, as far as they are in use.
    pub(crate) async fn view(&self, scope: &Scope) -> Result<Vec<LockView>, Failure> {
        let names = match scope {
            Scope::Names(names) => names.clone(),
            Scope::All => self.names().await?,
        };
        let views = futures_util::future::join_all(names.iter().map(|name| async move {
            if let Some(fleet) = &self.fleet {
                return self.look_together(fleet, name, *scope == Scope::All).await;
            }
            let key = self.common.space.key(name);
            let seen = if self.scripts_are_off() {
                self.look_without_scripts(&key).await?
            } else {
                self.ask(&LOOK, &key, &|form| call(&LOOK, form, &key)).await?
            };
            let Some((now, head)) = codec::seen(&seen)? else { return Ok(None) };
            // Nobody asked for a name under which something else is kept.
            let is_wanted = *scope != Scope::All || forms::is_line(head);
            Ok(codec::view(name, head, codec::store_time(now)).filter(|_| is_wanted))
        }));
        views.await.into_iter().filter_map(Result::transpose).collect()
    }

    /// The names of all locks in use, and of some that were.
    async fn names(&self) -> Result<Vec<Name>, Failure> {
        let mut names = Vec::new();
        for server in self.link.all().await? {
            let mut cursor = "0".to_owned();
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(&cursor).arg("MATCH").arg(self.common.space.pattern());
                scan.arg("COUNT").arg(1_000).arg("TYPE").arg("string");
                let answer = server.ask(&scan).await?.map_err(|error| classify(&error))?;
                let (next, keys): (String, Vec<String>) =
                    redis::from_redis_value(answer).map_err(|error| {
                        Failure::unknown(format!("the answer to SCAN cannot be read: {error}"))
                    })?;
                names.extend(keys.iter().filter_map(|key| self.common.space.name(key)));
                if next == "0" {
                    break;
                }
                cursor = next;
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }
}
