//! A resource that refuses late writers by their tokens.

use std::time::Duration;

use tidelock::{Locks, Token};

/// Keeps the largest token it has seen: one comparison makes it safe from holders that slept.
#[derive(Default)]
struct Shelf {
    largest: Option<Token>,
    stock: u32,
}

impl Shelf {
    fn write(&mut self, token: Token, stock: u32) -> Result<(), String> {
        if self.largest.is_some_and(|largest| token < largest) {
            return Err(format!("token {token} is older than {:?}", self.largest));
        }
        self.largest = Some(token);
        self.stock = stock;
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> tidelock::Result<()> {
    let locks = Locks::connect("memory:").await?;
    let mut shelf = Shelf::default();

    // A holder that does not renew, and sleeps for longer than its lease.
    let ttl = Duration::from_millis(100);
    let sleeper = locks.mutex("shelf").ttl(ttl).auto_renew(false).lock().await?;
    println!("sleeper: {}", sleeper.lost().await);

    let next = locks.mutex("shelf").lock().await?;
    println!("next one writes:    {:?}", shelf.write(next.token(), 9));
    println!("sleeper writes:     {:?}", shelf.write(sleeper.token(), 10));
    println!("stock is {}", shelf.stock);
    next.release().await
}
