use tidelock::{Locks, Outcome, Result, locked};

#[locked("report", once_per = "1d")]
async fn without_outcome(locks: &Locks) -> Result<u32> {
    Ok(17)
}

#[locked("report", once_per = "1d", shared)]
async fn with_shared(locks: &Locks) -> Result<Outcome<u32>> {
    Ok(Outcome::Ran(17))
}

#[locked("report", once_per = "1d", wait = "5s")]
async fn with_wait(locks: &Locks) -> Result<Outcome<u32>> {
    Ok(Outcome::Ran(17))
}

fn main() {}
