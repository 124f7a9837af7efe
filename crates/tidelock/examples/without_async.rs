//! The same locks for code without async: threads that share five permits.

use std::{thread, time::Duration};

use tidelock::blocking::Locks;

fn main() -> tidelock::Result<()> {
    let locks = Locks::connect("memory:")?;
    thread::scope(|scope| {
        for worker in 0..4 {
            let permits = locks.semaphore("downloads", 5).label(format!("worker {worker}"));
            scope.spawn(move || {
                let two = permits.acquire(2)?;
                println!("worker {worker} downloads with token {}", two.token());
                thread::sleep(Duration::from_millis(50));
                two.release()
            });
        }
    });
    Ok(())
}
