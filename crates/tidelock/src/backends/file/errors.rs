//! What errors of the system mean, and what to do about them.

use std::{io, path::Path};

use rustix::io::Errno;

use crate::{backend::Failure, backends::shared::failures::copy_of};

/// What failed, on what, why, and what to do. Nothing changed: what was written in part does not count.
pub(super) fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    let text = format!("cannot {what} {}: {error}", path.display());
    conclude(text, error).caused_by(copy_of(error))
}

fn conclude(text: String, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Failure::denied(format!("{text}; make the directory writable for this user"))
        }
        io::ErrorKind::NotFound => {
            Failure::denied(format!("{text}; the directory was removed: connect again"))
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Failure::unreachable(format!("{text}; free some space"))
        }
        _ => match Errno::from_io_error(error) {
            Some(Errno::MFILE) => Failure::unreachable(format!(
                "{text}; close some files or raise the limit of this process (ulimit -n)"
            )),
            Some(Errno::NFILE) => Failure::unreachable(format!(
                "{text}; close some files or raise the limit of the machine (sysctl fs.file-max)"
            )),
            _ => Failure::unreachable(text),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::FailureKind;

    #[test]
    fn an_error_says_what_to_do_and_a_shortage_may_be_tried_again() {
        for (error, kind, says) in [
            (Errno::MFILE, FailureKind::Unreachable, "ulimit -n"),
            (Errno::NFILE, FailureKind::Unreachable, "fs.file-max"),
            (Errno::NOSPC, FailureKind::Unreachable, "free some space"),
            (Errno::DQUOT, FailureKind::Unreachable, "free some space"),
            (Errno::ROFS, FailureKind::Denied, "writable"),
            (Errno::IO, FailureKind::Unreachable, "cannot open /x"),
        ] {
            let failure = failed("open", Path::new("/x"), &error.into());
            assert!(failure.kind == kind && failure.reason.contains(says), "{failure}");
            let cause = failure.cause.unwrap();
            assert_eq!(cause.downcast_ref().and_then(io::Error::raw_os_error), Some(error.raw_os_error()));
        }
    }
}
