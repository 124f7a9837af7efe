//! Readers of files and doorbells, for [`testing::hostile`](crate::testing::hostile): every program of the same user
//! can write them.

use std::{fs::File, os::unix::fs::FileExt};

use rustix::fs::{MemfdFlags, memfd_create};

use super::{
    bucket::{Bucket, Desk},
    codec::{self, Ring},
};
use crate::testing::hostile::{Reader, use_line};

pub(super) const READERS: [Reader; 2] =
    [Reader { name: "file_bucket", read: bucket }, Reader { name: "file_records", read: records }];

/// A file of buckets.
fn bucket(bytes: &[u8]) {
    let Ok(file) = memfd_create("buckets", MemfdFlags::CLOEXEC).map(File::from) else { return };
    // The reader begins behind the header of the file.
    if file.write_all_at(bytes, super::bucket::HEADER).is_err() {
        return;
    }
    let mut desk = Desk::default();
    for bucket in 0..2 {
        if let Ok(Some(found)) = Bucket::read(&file, &mut desk, bucket) {
            lines(found.payload(&desk));
        }
    }
}

/// The payload of a bucket, or a doorbell.
fn records(bytes: &[u8]) {
    lines(bytes);
    if let Some(ring) = Ring::read(bytes) {
        let _ = ring.write();
    }
}

fn lines(payload: &[u8]) {
    for record in codec::records(payload) {
        let _ = record.last_epoch();
        let Some(name) = record.read_name() else { continue };
        if let Some(line) = record.read_line(&name) {
            let mut out = Vec::new();
            codec::write_record(&mut out, &name, &line);
            use_line(&name, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{line::Line, name::Name, token::LARGEST_EPOCH};

    /// Found by `cargo xtask fuzz`: one more than the largest number is no number.
    #[test]
    fn a_record_whose_epoch_no_other_can_follow_is_damaged() {
        let name = Name::new("a").unwrap();
        for (epoch, is_read) in [(LARGEST_EPOCH - 1, true), (LARGEST_EPOCH, false), (u64::MAX, false)] {
            let mut payload = Vec::new();
            codec::write_record(&mut payload, &name, &Line::from_parts(epoch, []));
            let record = codec::records(&payload).next().unwrap();
            assert_eq!(record.last_epoch().is_some(), is_read, "{epoch}");
            assert_eq!(record.read_line(&name).is_some(), is_read, "{epoch}");
        }
    }
}
