//! Readers of frames and of the names of nodes, for [`testing::hostile`](crate::testing::hostile): other programs make
//! nodes too.

use super::{
    codec::{nodes::Contender, paths},
    link::wire,
};
use crate::testing::hostile::Reader;

pub(super) const READERS: [Reader; 2] =
    [Reader { name: "zookeeper_frame", read: frame }, Reader { name: "zookeeper_node", read: node }];

/// A frame of the server, as any of those that are expected.
fn frame(bytes: &[u8]) {
    let _ = wire::connected(bytes);
    let _ = (wire::created(bytes), wire::stat(bytes), wire::data(bytes));
    let _ = (wire::multi(bytes), wire::event(bytes));
    for node in wire::children(bytes).into_iter().flatten() {
        let _ = Contender::read(&node);
    }
}

/// The name or path of a node.
fn node(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(contender) = Contender::read(text) {
        let _ = (contender.is_plain(), contender.stays());
    }
    if let Some(name) = paths::name("/tidelock", text) {
        let path = paths::path("/tidelock", &name);
        assert_eq!(paths::name("/tidelock", &path), Some(name), "a path of ours");
        let _ = paths::with_parents(&path).count();
    }
}
