//! A reader of notifications, for [`testing::hostile`](crate::testing::hostile): every user of the database can send
//! them.

use super::codec;
use crate::testing::hostile::Reader;

pub(super) const READERS: [Reader; 1] = [Reader { name: "postgres_notice", read: notice }];

/// The payload of a notification, and numbers that a function answers with.
fn notice(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = (codec::news(text, ""), codec::news(text, "app/"));
    }
    let (eights, _) = bytes.as_chunks::<8>();
    let numbers: Vec<i64> = eights.iter().map(|eight| i64::from_le_bytes(*eight)).collect();
    let _ = codec::entered(&numbers);
    for claims in 0..3 {
        let _ = codec::standings(&numbers, claims);
    }
}
