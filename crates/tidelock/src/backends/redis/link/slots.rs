//! In which slot of a cluster a key is, and which channels are in the same slot.

use std::{collections::BTreeMap, sync::Mutex};

use crate::backends::shared::mutex::lock;

pub(super) const SLOTS: usize = 16_384;

/// Texts with every slot that was asked for, found by trying one after the other, and how many were tried.
static TAGS: Mutex<(BTreeMap<u16, Box<str>>, u32)> = Mutex::new((BTreeMap::new(), 0));

/// What channels of a slot end with: the same for every client.
pub(super) fn shard(slot: u16) -> Box<str> {
    let mut tags = lock(&TAGS);
    let (known, tried) = &mut *tags;
    loop {
        if let Some(tag) = known.get(&slot) {
            return tag.clone();
        }
        let tag = format!(":{{{tried:x}}}");
        known.entry(self::slot(&tag)).or_insert_with(|| tag.into());
        *tried += 1;
    }
}

/// The slot of a key: of what stands between its first braces, if anything does.
pub(super) fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16(hashed.as_bytes()) % SLOTS as u16
}

/// CRC-16/XMODEM, as Redis Cluster uses it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ u16::from(*byte) << 8,
            |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!((slot("foo"), slot("{foo}:x"), slot("a{foo}{b}")), (12_182, 12_182, 12_182));
        assert_eq!(slot("{}foo"), crc16(b"{}foo") % 16_384);
    }

    #[test]
    fn channels_of_a_slot_end_with_the_first_text_that_has_it() {
        for wanted in [0, 7, 16_383] {
            let tag = (0_u32..).map(|n| format!(":{{{n:x}}}")).find(|tag| slot(tag) == wanted);
            assert_eq!(Some(&*shard(wanted)), tag.as_deref());
        }
    }
}
