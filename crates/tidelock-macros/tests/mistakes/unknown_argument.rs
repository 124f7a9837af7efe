use tidelock::{Locks, Result, locked};

#[locked("orders/{order}")]
async fn misspelt(locks: &Locks, id: u64) -> Result<()> {
    Ok(())
}

#[locked("orders/{id}")]
async fn without_arguments() -> Result<()> {
    Ok(())
}

#[locked("orders/{self.id}")]
async fn without_self(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
