use tidelock::{Locks, Outcome, Result, locked};

#[locked("orders", ttl = "soon")]
async fn not_a_time(locks: &Locks) -> Result<()> {
    Ok(())
}

#[locked("orders", ttl = 5)]
async fn without_unit(locks: &Locks) -> Result<()> {
    Ok(())
}

#[locked("orders", once_per = "0s")]
async fn no_period(locks: &Locks) -> Result<Outcome<()>> {
    Ok(Outcome::Ran(()))
}

#[locked("orders", held = a.b)]
async fn not_a_variable(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
