use tidelock::{Locks, Result, locked};

#[locked("orders")]
async fn two(one: &Locks, other: &Locks) -> Result<()> {
    Ok(())
}

#[locked("orders")]
const fn constant(locks: &Locks) -> Result<()> {
    Ok(())
}

#[locked("orders")]
struct NotAFunction;

fn main() {}
