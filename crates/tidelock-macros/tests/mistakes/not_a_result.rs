use tidelock::{Locks, locked};

#[locked("orders")]
async fn nothing(locks: &Locks) {}

#[locked("orders")]
fn a_number(locks: &tidelock::blocking::Locks) -> u32 {
    17
}

fn main() {}
