//! Programs and runtimes that end.

use std::time::Duration;

use super::{
    ends::{Scene, endings},
    outlived,
    worker::{Folder, Worker},
};

const SHORT: Duration = Duration::from_secs(3);

/// Tests on a scene, or with clients of a directory.
macro_rules! forward {
    ($(scene $scene:ident;)* $(outlived $outlived:ident;)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $scene() {
            let folder = Folder::new();
            let locks = folder.connect().await;
            let start = |what: &str, ttl| Worker::start(&folder, what, ttl);
            Scene { locks, start, short: SHORT }.$scene().await;
        })*
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $outlived() {
            outlived::$outlived(&Folder::new().url(), SHORT).await;
        })*
    };
}

endings!(forward);
