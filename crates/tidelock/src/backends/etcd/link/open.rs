//! Opening a connection: finding a member that can grant locks, and logging in.

use std::time::Duration;

use futures_util::future::join;
use tonic::transport::Endpoint;

use super::{
    Link,
    connection::{Connection, Greeting},
    single::Single,
};
use crate::{
    backend::{Failure, FailureKind},
    backends::etcd::{
        errors::{classify, classify_connecting, needs_no_login},
        fitness::Fitness,
        proto::{AuthenticateRequest, RangeRequest, StatusRequest},
        settings::CONNECT,
    },
    backends::shared::failures::{at, before_asking, no_answer_within},
};

/// How long a member may take to read a key, beyond its status.
const READ: Duration = Duration::from_millis(300);

impl Link {
    /// Connects to the first member, from the next one on, that can grant locks.
    pub(super) async fn open(&self) -> Result<Connection, Failure> {
        let (first, number) = {
            let mut state = self.state();
            state.number += 1;
            (state.next, state.number)
        };
        let mut second_best = None;
        let mut why: Option<Failure> = None;
        for offset in 0..self.members.len() {
            let member = (first + offset) % self.members.len();
            let (address, endpoint) = &self.members[member];
            let made = tokio::time::timeout(CONNECT, self.make(endpoint, number)).await;
            match made.unwrap_or_else(|_| Err(no_answer_within(CONNECT))) {
                Ok((live, fitness)) => {
                    let obstacle = fitness.obstacle();
                    self.state().fitness[member] = Some(fitness);
                    match obstacle {
                        None => return Ok(self.use_now(live, member)),
                        Some(obstacle) => {
                            second_best.get_or_insert((live, member));
                            why.get_or_insert(at(address, Failure::unreachable(obstacle)));
                        }
                    }
                }
                // What the user can fix is worth more to know than what is down.
                Err(failure) if failure.kind == FailureKind::Denied => why = Some(at(address, failure)),
                Err(failure) => {
                    why.get_or_insert(at(address, failure));
                }
            }
        }
        match second_best {
            // There may be a leader in a moment: better to wait for it there than to give up.
            Some((live, member)) => Ok(self.use_now(live, member)),
            None => Err(why.unwrap_or_else(|| Failure::unreachable("the URL names no member"))),
        }
    }

    fn use_now(&self, live: Connection, member: usize) -> Connection {
        let mut state = self.state();
        state.next = member;
        state.live = Some(live.clone());
        drop(state);
        self.in_use.send_replace(live.number);
        live
    }

    async fn make(&self, endpoint: &Endpoint, number: u64) -> Result<(Connection, Fitness), Failure> {
        let channel = endpoint.connect_with_connector(Single::new()).await.map_err(classify_connecting)?;
        let mut live = Connection::new(channel, number);
        let mut unused_login = false;
        if let Some((name, password)) = &self.login {
            let ask = AuthenticateRequest { name: name.clone(), password: password.clone() };
            match live.clone().ask(ask).await {
                Ok(answer) => {
                    let token = answer.token.parse();
                    live.token =
                        Some(token.map_err(|_| Failure::denied("the server's token cannot be used"))?);
                }
                Err(status) if needs_no_login(&status) => unused_login = true,
                Err(status) => return Err(before_asking(classify(&status))),
            }
        }
        // A member without a leader does not answer this, and is not waited for.
        let base = RangeRequest::one(self.base.clone());
        let base = tokio::time::timeout(READ, live.clone().ask(base));
        let (status, base) = join(live.clone().ask(StatusRequest {}), base).await;
        let fitness = match status {
            Ok(status) => {
                let base = base.ok().and_then(Result::ok);
                live.greeting = base.map(|base| Greeting { status: status.clone(), base });
                Fitness::read(status, unused_login)
            }
            Err(status) if status.code() == tonic::Code::PermissionDenied => Fitness::Silent,
            Err(status) => return Err(before_asking(classify(&status))),
        };
        Ok((live, fitness))
    }
}
