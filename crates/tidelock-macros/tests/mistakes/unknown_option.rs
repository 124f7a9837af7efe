use tidelock::{Locks, Result, locked};

#[locked("orders", tll = "5s")]
async fn misspelt(locks: &Locks) -> Result<()> {
    Ok(())
}

#[locked("orders", ttl = "5s", ttl = "6s")]
async fn twice(locks: &Locks) -> Result<()> {
    Ok(())
}

#[locked("orders", wait)]
async fn without_value(locks: &Locks) -> Result<()> {
    Ok(())
}

#[locked(ttl = "5s")]
async fn without_name(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
