//! Stock that is sold by several machines, with the lock in Redis and the token beside the stock. Start it twice.
//!
//! `TIDELOCK_URL=redis://host cargo run --example redis --features redis`

use std::time::Duration;

use tidelock::{Locks, Token};

/// Stands for a row of a database: `UPDATE stock SET left = …, token = $1 WHERE token <= $1`.
#[derive(Debug)]
struct Stock {
    left: u32,
    token: Option<Token>,
}

impl Stock {
    fn sell(&mut self, token: Token) -> Result<(), String> {
        if self.token.is_some_and(|last| token < last) {
            return Err(format!("token {token} is late: somebody with a larger one was here"));
        }
        self.token = Some(token);
        self.left -= 1;
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> tidelock::Result<()> {
    let url = std::env::var("TIDELOCK_URL");
    let locks = Locks::connect(url.as_deref().unwrap_or("redis://127.0.0.1")).await?;
    for concern in locks.concerns() {
        eprintln!("to fix: {concern}");
    }

    let mut stock = Stock { left: 3, token: None };
    let mutex = locks.mutex("stock/42").ttl(Duration::from_secs(10)).wait(Duration::from_secs(60));
    while stock.left > 0 {
        // Stopped if the lock is lost; a sale that was already on its way is stopped by its token.
        let sold = mutex.run(async |held| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            stock.sell(held.token())
        });
        println!("{:?}, {} left", sold.await?, stock.left);
    }
    Ok(())
}
