//! Leading programs of the previous version to the directory that is used now.
//!
//! Version 0.1 took the user's directory from `XDG_STATE_HOME` and `HOME`. Where that was another one, a program of
//! that version may hold locks there, or be started later. So the earlier directory is replaced by a symbolic link
//! to the one that is used now: all programs meet there. As long as somebody uses the earlier one, nothing
//! is changed and no client connects.

use std::{
    ffi::OsString,
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, symlink},
    path::Path,
    time::Duration,
};

use super::{
    boot::is_ahead_of,
    codec::records,
    errors::failed,
    order::ends_with_its_client,
    session,
    shard::{Change, Judge, Section, Shard},
};
use crate::{
    backend::Failure,
    clock::{Clock, Moment},
};

/// How often, a millisecond apart, to try again while a program begins or ends.
const TRIES: usize = 50;
/// How often to try again while another client does the same.
const TURNS: usize = 5_000;

/// Makes the earlier directory lead to `place`, the full path of the one that is used now.
pub(super) fn lead(earlier: &Path, place: &Path) -> Result<(), Failure> {
    if is_led(earlier, place) {
        return Ok(());
    }
    // One client at a time: another would follow the link that the first has just made, and clear `place`.
    let turn = File::open(place).map_err(|error| failed("open", place, &error))?;
    for _ in 0..TURNS {
        match turn.try_lock() {
            Ok(()) => return lead_alone(earlier, place),
            Err(TryLockError::WouldBlock) => pause(),
            Err(TryLockError::Error(error)) => return Err(failed("lock", place, &error)),
        }
    }
    Err(Failure::unreachable(format!(
        "another process has been replacing {} for seconds: let it go on (kill -CONT) or end it",
        earlier.display()
    )))
}

fn is_led(earlier: &Path, place: &Path) -> bool {
    earlier.canonicalize().is_ok_and(|real| real == place)
}

fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}

fn lead_alone(earlier: &Path, place: &Path) -> Result<(), Failure> {
    let mut trouble = None;
    for _ in 0..TRIES {
        match try_lead(earlier, place)? {
            None => return Ok(()),
            Some(why) => trouble = Some(why),
        }
        pause();
    }
    Err(Failure::denied(format!(
        "earlier versions kept the locks of this user in {} and they are in {} now; {}: stop what uses the former and move it away, or set TIDELOCK_DIR={} for all programs",
        earlier.display(),
        place.display(),
        trouble.unwrap_or_default(),
        earlier.display()
    )))
}

/// Says why it cannot be done now; [`None`]: it is done, or need not be.
fn try_lead(earlier: &Path, place: &Path) -> Result<Option<String>, Failure> {
    let user = rustix::process::geteuid().as_raw();
    let data = match fs::symlink_metadata(earlier) {
        Ok(data) => data,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return plant(earlier, place, user),
        // Out of reach, for the previous version as well.
        Err(_) => return Ok(None),
    };
    if is_led(earlier, place) {
        return Ok(None);
    }
    if data.is_symlink() {
        // Of somebody else, or to nowhere: the previous version cannot use it either.
        let usable = fs::metadata(earlier).is_ok_and(|data| data.is_dir() && data.uid() == user);
        return Ok(usable.then(|| "the former is a link to a third directory".to_owned()));
    }
    if !data.is_dir() || data.uid() != user {
        return Ok(None);
    }
    let trouble = clear(earlier)?;
    if trouble.is_none() { plant(earlier, place, user) } else { Ok(trouble) }
}

/// Makes the link, where this user could have made a directory of its own.
fn plant(earlier: &Path, place: &Path, user: u32) -> Result<Option<String>, Failure> {
    let Some(folder) = earlier.parent() else { return Ok(None) };
    // The home of somebody else, as under `sudo`: a link there would lead its owner to us. And a home that does
    // not exist is not made for a link.
    let nearest = folder.ancestors().find(|folder| folder.exists());
    let ours = nearest
        .filter(|folder| *folder != Path::new("/"))
        .and_then(|folder| fs::metadata(folder).ok())
        .is_some_and(|data| data.uid() == user || data.mode() & 0o1000 != 0);
    if !ours {
        return Ok(None);
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    match made.and_then(|()| symlink(place, earlier)) {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Ok(Some("the former has just been made".to_owned()))
        }
        // The previous version could not write there either.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied
                    | io::ErrorKind::ReadOnlyFilesystem
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::NotFound
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(failed("make the link", earlier, &error)),
    }
}

/// Removes a directory of locks that nobody uses. Says why if somebody does.
///
/// All shards stay locked until they are removed. A program that opened one of them before opened its session
/// before that, so it is found among the living; one that comes later finds that its file was removed, or
/// puts its session into the folder, which then cannot be removed.
fn clear(earlier: &Path) -> Result<Option<String>, Failure> {
    let names = list(earlier)?;
    let is_shard = |name: &OsString| name.to_str().is_some_and(|name| name.ends_with(".shard"));
    if let Some(other) = names.iter().find(|name| *name != "s" && !is_shard(name)) {
        return Ok(Some(format!("the former has {other:?} in it, which is not moved")));
    }
    let shards: Vec<_> =
        names.iter().filter(|name| is_shard(name)).map(|name| Shard::at(earlier.join(name))).collect();
    let mut sections = Vec::new();
    for shard in &shards {
        match shard.try_begin()? {
            Some(section) => sections.push(section),
            None => return Ok(Some("the former is in use".to_owned())),
        }
    }
    let sessions = earlier.join("s");
    if let Some(program) = session::first_alive(&sessions)? {
        return Ok(Some(format!("the former is in use by {program}")));
    }
    let now = Clock::machine().now();
    for (shard, section) in shards.iter().zip(&mut sections) {
        if let Some(name) = held_by_ticket(shard, section, now)? {
            return Ok(Some(format!("lock {name:?} is held there by a ticket")));
        }
    }
    let removed = shards
        .iter()
        .try_for_each(|shard| gone(fs::remove_file(shard.path())))
        .and_then(|()| session::clear(&sessions))
        .and_then(|()| gone(fs::remove_dir(&sessions)))
        .and_then(|()| gone(fs::remove_dir(earlier)));
    match removed {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            Ok(Some("a program has just begun to use the former".to_owned()))
        }
        Err(error) => Err(failed("remove", earlier, &error)),
    }
}

fn list(folder: &Path) -> Result<Vec<OsString>, Failure> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // Another client was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("read", folder, &error)),
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    names.collect::<io::Result<_>>().map_err(|error| failed("read", folder, &error))
}

/// Somebody else may have removed it already.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Shows claims as they are written.
struct All;

impl Judge for All {
    fn boot(&self) -> u64 {
        0
    }

    fn survivors(&self, payload: &[u8]) -> Vec<u8> {
        payload.to_vec()
    }
}

/// A lock that is held though no client is alive.
fn held_by_ticket(shard: &Shard, section: &mut Section<'_>, now: Moment) -> Result<Option<String>, Failure> {
    for bucket in shard.used()? {
        let payload = section.change(bucket, &All, |payload, _, _| Change::Keep(payload.to_vec()))?;
        for record in records(&payload) {
            let Some(name) = record.read_name() else { continue };
            let Some(line) = record.read_line(&name) else {
                return Ok(Some(name.to_string()));
            };
            let held = |part: &crate::model::line::Part| {
                !ends_with_its_client(part) && part.lapses > now && !is_ahead_of(part, now)
            };
            if line.parts().any(|part| held(&part)) {
                return Ok(Some(name.to_string()));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, sync::Arc};

    use super::*;
    use crate::{
        backend::{Ask, Backend, Claim, ClaimId, ClientId, Entered, Share},
        backends::file::{FileBackend, FileConfig},
        model::name::Name,
    };

    /// A folder with the directory that is used now, `now`, and room for an earlier one, `earlier`.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("tl-earlier-{:?}", ClientId::random()));
            fs::create_dir_all(path.join("now/s")).unwrap();
            Self(path.canonicalize().unwrap())
        }

        fn earlier(&self) -> PathBuf {
            self.0.join("earlier")
        }

        fn lead(&self) -> Result<(), Failure> {
            lead(&self.earlier(), &self.0.join("now"))
        }

        fn is_led(&self) -> bool {
            fs::read_link(self.earlier()).is_ok_and(|to| to == self.0.join("now"))
        }

        /// A client of the earlier directory that has held a lock.
        async fn client(&self, detached: bool) -> (FileBackend, ClaimId) {
            let client = ClientId::random();
            let backend = FileBackend::connect(&FileConfig::new(self.earlier()), client).unwrap();
            let claim = Claim {
                id: ClaimId::new(client, 1),
                name: Name::new("job").unwrap(),
                share: Share::Exclusive,
                owner: None,
                ttl: Duration::from_secs(30),
                label: "".into(),
                detached,
                writes: false,
                auto_renew: true,
            };
            let entered = backend.enter(&Arc::new(claim.clone()), Ask::Queue).await.unwrap();
            assert!(matches!(entered, Entered::Held(_)));
            (backend, claim.id)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[tokio::test]
    async fn a_directory_that_nobody_uses_becomes_a_link_and_one_in_use_is_left_alone() {
        let folder = Folder::new();
        let (backend, _) = folder.client(false).await;
        let text = folder.lead().unwrap_err().to_string();
        assert!(text.contains("in use by pid") && text.contains("TIDELOCK_DIR="), "{text}");
        assert!(folder.earlier().join("s").is_dir() && !folder.is_led());
        // Its claim is still in line, but nobody answers for it.
        drop(backend);
        folder.lead().unwrap();
        assert!(folder.is_led());
        folder.lead().unwrap();
    }

    #[tokio::test]
    async fn a_hold_that_was_left_behind_is_not_given_up() {
        let folder = Folder::new();
        let (backend, _) = folder.client(true).await;
        drop(backend);
        let text = folder.lead().unwrap_err().to_string();
        assert!(text.contains("\"job\" is held there by a ticket"), "{text}");
    }

    #[test]
    fn where_nothing_is_yet_a_link_is_made_and_nothing_else_is_touched() {
        let folder = Folder::new();
        folder.lead().unwrap();
        assert!(folder.is_led());
        let folder = Folder::new();
        fs::create_dir_all(folder.earlier().join("stock")).unwrap();
        let text = folder.lead().unwrap_err().to_string();
        assert!(text.contains("\"stock\"") && folder.earlier().join("stock").is_dir(), "{text}");
        let folder = Folder::new();
        fs::write(folder.earlier(), "a file").unwrap();
        folder.lead().unwrap();
        assert_eq!(fs::read_to_string(folder.earlier()).unwrap(), "a file");
        let folder = Folder::new();
        fs::create_dir(folder.0.join("third")).unwrap();
        symlink(folder.0.join("third"), folder.earlier()).unwrap();
        let text = folder.lead().unwrap_err().to_string();
        assert!(text.contains("third directory"), "{text}");
    }
}
