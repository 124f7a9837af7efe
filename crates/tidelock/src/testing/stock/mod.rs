//! How a store of stock is proven: shared cases, random steps compared with the model, and a store that loses answers.

mod cases;
pub mod compare;
mod defects;
mod lossy;
mod sales;

use std::{fmt, pin::Pin, sync::Arc};

pub use self::{
    defects::{Defect, Defective},
    lossy::{Counted, Lossy},
};
use crate::stock::{Stock, StockStore, Stocks};

/// What is to be proven: a store, or several that are used together.
pub trait Stand: fmt::Debug + Send + Sync {
    /// Connects another client.
    fn connect(&self) -> Pin<Box<dyn Future<Output = Stocks> + Send>>;
}

/// A stand, and an item that no other case has.
#[derive(Clone, Debug)]
pub struct World {
    stand: Arc<dyn Stand>,
    item: String,
}

impl World {
    /// A world of its own for a case.
    pub fn new(stand: Arc<dyn Stand>, item: &str) -> Self {
        Self { stand, item: item.to_owned() }
    }

    /// The name of the item.
    pub fn item(&self) -> &str {
        &self.item
    }

    /// Another client.
    pub async fn stocks(&self) -> Stocks {
        self.stand.connect().await
    }

    /// Another client, with something in front of each of its stores.
    pub async fn behind<S: StockStore + 'static>(&self, front: impl Fn(Arc<dyn StockStore>) -> S) -> Stocks {
        let stores = self.stocks().await.stores().to_vec();
        let fronted = stores.into_iter().map(|store| Arc::new(front(store)) as Arc<dyn StockStore>);
        Stocks::with_stores(fronted.collect()).expect("there are stores")
    }

    /// The stock of the item, by another client.
    pub async fn open(&self, initial: u64, segments: u32) -> Stock {
        let opening = self.stocks().await.open(&self.item, initial).segments(segments);
        opening.await.expect("stock that can be opened")
    }
}

/// All cases.
pub fn all() -> Vec<Case> {
    [cases::all(), sales::all()].concat()
}

/// One case: a property of every store.
#[derive(Clone, Copy)]
pub struct Case {
    /// A sentence.
    pub name: &'static str,
    /// Its work; it panics if the property does not hold.
    pub run: fn(World) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
