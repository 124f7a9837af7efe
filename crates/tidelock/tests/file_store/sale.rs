//! A shop: many processes sell from one stock, which is read and written back without any care.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::FileExt,
    path::Path,
    time::Duration,
};

use rustix::process::{Signal, getpid, kill_process};
use tidelock::Locks;

use super::{
    LONG, NAME,
    worker::{Folder, Worker, say},
};

const STOCK: usize = 400;
const SELLERS: usize = 8;

/// Sells until nothing is left. Kills itself in the middle of its nth sale, if there is an nth.
pub(crate) async fn sell(locks: &Locks, folder: &Path, ttl: Duration, dies_at: usize) {
    let mutex = locks.mutex(NAME).ttl(ttl);
    let stock = OpenOptions::new().read(true).write(true).open(folder.join("stock")).unwrap();
    let mut log = OpenOptions::new().append(true).open(folder.join("sold")).unwrap();
    for sale in 1.. {
        let guard = mutex.lock().await.unwrap();
        let item = left(&stock);
        if item == 0 {
            guard.release().await.unwrap();
            return say("done");
        }
        // Others get every chance to come between reading and writing.
        std::thread::yield_now();
        stock.write_all_at(format!("{:08}", item - 1).as_bytes(), 0).unwrap();
        if sale == dies_at {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        log.write_all(format!("{item} {}\n", guard.token()).as_bytes()).unwrap();
        guard.release().await.unwrap();
    }
}

fn left(stock: &File) -> usize {
    let mut text = [0; 8];
    stock.read_exact_at(&mut text, 0).unwrap();
    std::str::from_utf8(&text).unwrap().parse().unwrap()
}

/// Lets them sell everything: each dies in the middle of its nth sale, or never at 0. Says how many
/// items were sold; none was sold twice.
fn sell_out(dies_at: [usize; SELLERS]) -> usize {
    let folder = Folder::new();
    fs::write(folder.0.join("stock"), format!("{STOCK:08}")).unwrap();
    fs::write(folder.0.join("sold"), "").unwrap();
    let mut sellers = dies_at.map(|nth| (nth, Worker::start(&folder, &format!("sell {nth}"), LONG)));
    for (nth, seller) in &mut sellers {
        if *nth == 0 {
            seller.hear("done");
        } else {
            assert!(!seller.child.wait().unwrap().success(), "it was to be killed");
        }
    }
    assert_eq!(left(&File::open(folder.0.join("stock")).unwrap()), 0);
    let log = fs::read_to_string(folder.0.join("sold")).unwrap();
    let number = |text: &str| text.parse::<u64>().unwrap();
    let sales: Vec<_> = log.lines().map(|line| line.split_once(' ').unwrap()).collect();
    let sales: Vec<_> = sales.into_iter().map(|(item, token)| (number(item), number(token))).collect();
    for pair in sales.windows(2) {
        assert!(pair[1].0 < pair[0].0, "sold twice or out of order: {pair:?}");
        assert!(pair[1].1 > pair[0].1, "a token did not grow: {pair:?}");
    }
    sales.len()
}

#[test]
fn eight_processes_sell_each_item_once() {
    assert_eq!(sell_out([0; SELLERS]), STOCK);
}

#[test]
fn sellers_killed_in_the_middle_of_a_sale_sell_nothing_twice() {
    // A buyer that dies takes the item in its hands with it. Early enough for all buyers to get there.
    assert_eq!(sell_out([1, 5, 0, 10, 0, 15, 20, 0]), STOCK - 5);
}
