//! Names that are followed: a client asks to be told of the next change of holders, on the connection that listens.

use std::sync::{Arc, atomic::Ordering};

use super::store::MysqlStore;
use crate::{backend::Failure, backends::shared::following::Arms, model::name::Name};

impl Arms for MysqlStore {
    fn key_of(&self, name: &Name) -> String {
        name.as_str().to_owned()
    }

    async fn arm(self: Arc<Self>, key: String) -> Result<(), Failure> {
        // Another one each time, so that what was heard before is told from what is new.
        let number = self.followed.fetch_add(1, Ordering::Relaxed);
        let values = vec![key.into(), self.client.get().into(), number.into()];
        self.link.call("CALL tidelock_follow(?, ?, ?)", values).await.map(drop)
    }

    fn disarm(&self, _key: &str) {
        // One change more is told, and nobody listens.
    }
}
