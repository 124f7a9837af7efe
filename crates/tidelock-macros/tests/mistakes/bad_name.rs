use tidelock::{Locks, Result, locked};

#[locked("")]
async fn empty(locks: &Locks) -> Result<()> {
    Ok(())
}

#[locked("orders/{id")]
async fn open(locks: &Locks, id: u64) -> Result<()> {
    Ok(())
}

#[locked("orders/{}")]
async fn by_position(locks: &Locks, id: u64) -> Result<()> {
    Ok(())
}

#[locked("orders/{id:?}")]
async fn with_debug(locks: &Locks, id: u64) -> Result<()> {
    Ok(())
}

#[locked("orders/{id.len()}")]
async fn with_a_call(locks: &Locks, id: String) -> Result<()> {
    Ok(())
}

fn main() {}
