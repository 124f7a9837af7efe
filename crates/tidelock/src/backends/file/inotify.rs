//! The kernel's notices of changes of files.

pub(super) use self::sys::Inotify;

/// What was told when more happened than the kernel keeps.
pub(super) const LOST: i32 = -1;

#[cfg(target_os = "linux")]
mod sys {
    use std::{io, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

    use rustix::{
        fs::inotify::{CreateFlags, Event, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch},
        io::Errno,
    };
    use tokio::io::unix::AsyncFd;

    /// What the kernel calls an inotify instance.
    #[derive(Debug)]
    pub(in super::super) struct Inotify(AsyncFd<OwnedFd>);

    impl Inotify {
        #[allow(
            deprecated,
            reason = "its successor is unsafe for types that may change their descriptor; an owned one stays"
        )]
        pub(in super::super) fn new() -> io::Result<Self> {
            AsyncFd::new(init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?).map(Self)
        }

        /// Watches a file, or the files of a directory.
        pub(in super::super) fn watch(&self, path: &Path) -> io::Result<i32> {
            Ok(add_watch(self.0.get_ref(), path, WatchFlags::MODIFY)?)
        }

        pub(in super::super) fn forget(&self, number: i32) {
            // It fails only if the file is gone, and the watch with it.
            let _ = remove_watch(self.0.get_ref(), number);
        }

        /// Which watches told of a change.
        pub(in super::super) async fn changed(&self) -> io::Result<Vec<i32>> {
            let mut numbers = Vec::new();
            self.read(|event| {
                if numbers.last() != Some(&event.wd()) {
                    numbers.push(event.wd());
                }
                Ok(())
            })
            .await?;
            Ok(numbers)
        }

        /// Which files of a directory that is watched changed. Nothing: any of them may have.
        pub(in super::super) async fn changed_files(&self) -> io::Result<Option<Vec<String>>> {
            let mut files = Some(Vec::new());
            self.read(|event| {
                if event.events().contains(ReadFlags::IGNORED) {
                    // The directory was removed.
                    return Err(io::ErrorKind::NotFound.into());
                }
                match event.file_name().map(|name| name.to_string_lossy()) {
                    _ if event.wd() == super::LOST => files = None,
                    Some(name) => {
                        if let Some(files) = files.as_mut()
                            && files.last().is_none_or(|last: &String| *last != name)
                        {
                            files.push(name.into_owned());
                        }
                    }
                    None => {}
                }
                Ok(())
            })
            .await?;
            Ok(files)
        }

        /// Reads all that was told, once something was. Dropped while it waits, it loses nothing.
        async fn read(&self, mut each: impl FnMut(&Event<'_>) -> io::Result<()>) -> io::Result<()> {
            let mut ready = self.0.readable().await?;
            let mut bytes = [const { MaybeUninit::uninit() }; 4_096];
            let mut reader = Reader::new(self.0.get_ref(), &mut bytes);
            loop {
                match reader.next() {
                    Ok(event) => each(&event)?,
                    Err(Errno::AGAIN) => {
                        ready.clear_ready();
                        return Ok(());
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod sys {
    use std::{io, path::Path};

    /// There is none here: followers ask.
    #[derive(Debug)]
    pub(in super::super) struct Inotify(std::convert::Infallible);

    impl Inotify {
        pub(in super::super) fn new() -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn watch(&self, _path: &Path) -> io::Result<i32> {
            match self.0 {}
        }

        pub(in super::super) fn forget(&self, _number: i32) {
            match self.0 {}
        }

        pub(in super::super) async fn changed(&self) -> io::Result<Vec<i32>> {
            match self.0 {}
        }

        pub(in super::super) async fn changed_files(&self) -> io::Result<Option<Vec<String>>> {
            match self.0 {}
        }
    }
}
