//! Which file systems may carry locks: local ones, by name.
//!
//! A list of those that are allowed, not of those that are not: an `flock` that other machines do not see gives
//! the same lock to two holders, and nobody can list all network and cluster file systems.

use std::path::Path;

use crate::backend::Failure;

/// Kept on this machine, with `flock` and sockets. From the kernel's list of magic numbers, and those of
/// ZFS and bcachefs.
///
/// Overlay is among them because its upper layer, where all is written, must be one of these. Not among them:
/// FUSE, virtiofs (which says FUSE) and 9p, which may lead to another machine and do not tell; eCryptfs, which
/// may lie on any other; FAT, exFAT and NTFS, which have no owners or sockets.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LOCAL: [u64; 15] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683E, // Btrfs
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
    0x794C_7630, // overlay
    0xF2F5_2010, // F2FS
    0x2FC1_2FC1, // ZFS
    0xCA45_1A4E, // bcachefs
    0x3153_464A, // JFS
    0x5265_4973, // ReiserFS
    0x3434,      // NILFS
    0x2405_1905, // UBIFS
    0x72B6,      // JFFS2
    0x6175_6673, // aufs, whose writable branch is one of these
];

/// Those that people meet, for the error.
#[cfg(any(target_os = "linux", target_os = "android"))]
const OTHERS: [(u64, &str); 29] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB"),
    (0x00C3_6400, "Ceph"),
    (0x0102_1997, "9p"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x564C, "NCP"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x6573_5546, "FUSE or virtiofs"),
    (0x786F_4256, "vboxsf"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0xAAD7_AAEA, "PanFS"),
    (0x6163_6673, "ACFS"),
    (0xBACB_ACBC, "vmhgfs"),
    (0x7C7C_6673, "prl_fs"),
    (0xBEEF_DEAD, "StorNext"),
    (0xA501_FCF5, "VxFS"),
    (0xF15F, "eCryptfs"),
    (0x4D44, "FAT"),
    (0x2011_BAB0, "exFAT"),
    (0x7366_746E, "NTFS"),
    (0x9FA0, "proc"),
];

/// Refuses a directory that may be on a file system of several machines.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn check(directory: &Path) -> Result<(), Failure> {
    let found = rustix::fs::statfs(directory).map_err(|error| {
        Failure::denied(format!(
            "cannot tell on which file system the directory {} is: {error}; use another directory",
            directory.display()
        ))
    })?;
    judge(found.f_type as u64 & 0xFFFF_FFFF, directory)
}

/// Elsewhere the system is not asked.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn check(_: &Path) -> Result<(), Failure> {
    Ok(())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn judge(magic: u64, directory: &Path) -> Result<(), Failure> {
    if LOCAL.contains(&magic) {
        return Ok(());
    }
    let kind = OTHERS
        .iter()
        .find(|(other, _)| *other == magic)
        .map_or_else(|| format!("of type {magic:#x}"), |(_, name)| (*name).to_owned());
    Err(Failure::denied(format!(
        "the directory {} is on a file system ({kind}) that is not known to be local, and locks do not hold between machines: use a local one (ext4, XFS, Btrfs, tmpfs …), or ?allow=network if only one machine uses it",
        directory.display()
    )))
}

#[cfg(test)]
#[cfg(any(target_os = "linux", target_os = "android"))]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_that_are_known_to_be_local_are_allowed() {
        let directory = Path::new("/x");
        for magic in LOCAL {
            judge(magic, directory).unwrap();
        }
        for (magic, name) in OTHERS {
            let text = judge(magic, directory).unwrap_err().to_string();
            assert!(text.contains(&format!("({name})")) && text.contains("?allow=network"), "{text}");
        }
        let unheard_of = judge(0x1234_5678, directory).unwrap_err().to_string();
        assert!(unheard_of.contains("(of type 0x12345678)") && unheard_of.contains("?allow=network"));
    }

    #[test]
    fn a_file_system_that_cannot_be_told_is_an_error() {
        let text = check(Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert!(text.contains("cannot tell on which file system"), "{text}");
        // Real ones: the kernel's own are not for locks.
        let text = check(Path::new("/proc")).unwrap_err().to_string();
        assert!(text.contains("(proc)"), "{text}");
    }
}
