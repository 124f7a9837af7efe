//! The stores, each with its typed config and its backend.

// Each has a folder with the same files: `mod`, `config`, `backend`, `store`, `wake`, as far as it needs them, and a
// line in the list below. `registry` is what can be said of a store before it is connected; `target` is what a client
// connects to.

#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(all(unix, feature = "file"))]
pub mod file;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redlock;
pub(crate) mod registry;
pub(crate) mod shared;
pub(crate) mod target;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

use self::registry::LeftOut;
pub use self::{
    registry::{OptionDefault, Store, StoreOption},
    target::Target,
};

/// A line for each store, in the order in which people see them: its folder, its feature, and the systems that it is
/// limited to.
macro_rules! stores {
    ($($store:ident $(if $feature:literal $(on $system:ident)?)?;)*) => {
        const STORES: &[&Store] = &[$(#[cfg(all($(feature = $feature $(, $system)?)?))] &$store::STORE,)*];

        const LEFT_OUT: &[LeftOut] = &[$($(
            #[cfg(not(all(feature = $feature $(, $system)?)))]
            LeftOut {
                name: stringify!($store),
                feature: $feature,
                only: concat!("" $(, " (on ", stringify!($system), ")")?),
            },
        )?)*];
    };
}

stores! {
    file if "file" on unix;
    memory;
    redis if "redis";
    redlock if "redis";
    etcd if "etcd";
    zookeeper if "zookeeper";
    postgres if "postgres";
    mysql if "mysql";
}
