//! A reader of answers and events, for [`testing::hostile`](crate::testing::hostile): everybody with the password of
//! the cluster can write keys.

use prost::Message as _;

use super::{
    codec::Space,
    proto::{KeyValue, RangeResponse, TxnResponse, WatchResponse},
};
use crate::testing::hostile::Reader;

pub(super) const READERS: [Reader; 1] = [Reader { name: "etcd_message", read: message }];

/// An answer of the server, as any of those that are expected.
fn message(bytes: &[u8]) {
    let space = Space::new("tidelock/");
    let mut kvs: Vec<KeyValue> = Vec::new();
    kvs.extend(RangeResponse::decode(bytes).into_iter().flat_map(|answer| answer.kvs));
    kvs.extend(TxnResponse::decode(bytes).into_iter().flat_map(|answer| super::view::kvs(answer.responses)));
    kvs.extend(
        WatchResponse::decode(bytes).into_iter().flat_map(|heard| heard.events).filter_map(|event| event.kv),
    );
    for kv in kvs {
        let Some((name, _)) = space.name(&kv.key) else { continue };
        for contender in space.contenders(&name, vec![kv]) {
            let _ = (contender.claim(&name), contender.hold(), contender.epoch());
        }
    }
}
