//! Names that are followed: a client asks to be told of the next change of holders, on the channel on which it is told of its
//! claims.

use std::sync::Arc;

use super::{
    codec::client_text,
    store::{FOLLOW, PostgresStore},
};
use crate::{backend::Failure, backends::shared::following::Arms, model::name::Name};

impl Arms for PostgresStore {
    fn key_of(&self, name: &Name) -> String {
        self.key(name)
    }

    async fn arm(self: Arc<Self>, key: String) -> Result<(), Failure> {
        let client = client_text(self.link.client());
        self.link.ask(FOLLOW, &[&key, &client]).await.map(drop)
    }

    fn disarm(&self, _key: &str) {
        // One change more is told, and nobody listens.
    }
}
