//! Small crates, documented by the rustdoc that is installed.

use super::*;

/// The JSON of a crate with this source. `None`, and every test passes, if rustdoc writes a version of it that
/// is not known.
pub(super) fn documented(source: &str) -> Option<Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sample.rs");
    fs::write(&file, source).unwrap();
    let mut rustdoc = unstable("rustdoc".into());
    rustdoc.args(["--edition", "2024", "--crate-type", "lib", "-Z", "unstable-options"]);
    rustdoc.args(["--output-format", "json", "--document-hidden-items", "--out-dir"]);
    run::run(rustdoc.arg(folder.path()).arg(&file)).unwrap();
    let json = read(&folder.path().join("sample.json")).unwrap();
    let known = Api::read(&json).is_some();
    if !known {
        println!("skipped: {}", unknown(&json));
    }
    known.then_some(json)
}

#[track_caller]
fn assert_lines(source: &str, lines: &[&str]) {
    let Some(json) = documented(source) else { return };
    assert_eq!(Api::read(&json).unwrap().lines(), lines);
}

#[test]
fn items_are_listed_at_the_paths_that_users_write() {
    let source = "
        mod inside {
            pub struct Open { pub a: u8, secret: u8 }
            pub struct Closed;
            pub(crate) struct Internal;
            impl Open { pub fn secret(&self) -> u8 { self.secret } fn private(&self) {} }
            pub mod deep { pub fn reach() -> super::Closed { super::Closed } }
        }
        pub use inside::{Open, deep, deep::reach as grasp};
        pub mod all { pub use super::inside::*; }
        struct Private;
        impl Clone for Private { fn clone(&self) -> Self { Private } }
    ";
    assert_lines(
        source,
        &[
            "pub struct Open { .. }",
            "pub Open::a: u8",
            "pub fn Open::secret(&self) -> u8",
            "pub mod all",
            "pub struct all::Closed",
            "pub use Open as all::Open",
            "pub use deep as all::deep",
            "pub mod deep",
            "pub use grasp as deep::reach",
            "pub fn grasp() -> all::Closed",
        ],
    );
}

#[test]
fn signatures_are_whole() {
    let source = "
        use std::{collections::BTreeMap, fmt::Debug, future::Future, sync::Arc};
        pub struct Key<'a, T: ?Sized + 'a, const N: usize = 1>(pub u8, &'a [(u8, &'a T); N]);
        pub async fn fetch(key: &mut Vec<Option<u8>>, all: &[(u8,)]) -> std::io::Result<()> { Ok(()) }
        pub fn call<F, W>(work: F, by: Box<dyn Fn(&str) -> u8 + Send>) -> impl Future<Output = u8> + use<F, W>
        where F: for<'a> FnOnce(&'a str) -> W, W: IntoIterator<Item: Clone> { async { 1 } }
        pub fn take(self_: impl Into<Arc<str>>, at: fn(u8) -> bool, raw: *const u8) -> ! { panic!() }
        pub const fn map<K: Ord>(map: &BTreeMap<K, [u8; 4]>, any: &(dyn Debug + Send)) {}
        pub trait Store<T = u8>: Debug + Send {
            type Row: Clone;
            const SIZE: usize;
            fn get(&self) -> Self::Row;
            fn two(self: Arc<Self>) -> bool { true }
        }
    ";
    assert_lines(
        source,
        &[
            "pub struct Key<'a, T: ?Sized + 'a, const N: usize = 1>(pub u8, _)",
            "pub trait Store<T = u8>: Debug + Send",
            "type Store::Row: Clone",
            "const Store::SIZE: usize",
            "fn Store::get(&self) -> Self::Row",
            "fn Store::two(self: Arc<Self>) -> bool { .. }",
            "pub fn call<F, W>(work: F, by: Box<dyn Fn(&str) -> u8 + Send>) -> impl Future<Output = u8> + use<F, W> \
             where F: for<'a> FnOnce(&'a str) -> W, W: IntoIterator<Item: Clone>",
            "pub async fn fetch(key: &mut Vec<Option<u8>>, all: &[(u8,)]) -> Result<()>",
            "pub const fn map<K: Ord>(map: &BTreeMap<K, [u8; 4]>, any: &(dyn Debug + Send))",
            "pub fn take(self_: impl Into<Arc<str>>, at: fn(u8) -> bool, raw: *const u8) -> !",
        ],
    );
}

#[test]
fn implementations_are_listed_and_so_is_a_lack_of_send() {
    let source = "
        #[derive(Clone, Copy, PartialEq)] pub struct Token(u64);
        impl From<Token> for u64 { fn from(token: Token) -> u64 { token.0 } }
        pub struct Local(*const u8);
        pub struct List<T>(Vec<T>);
        impl<'a, T> IntoIterator for &'a List<T> {
            type Item = &'a T;
            type IntoIter = std::slice::Iter<'a, T>;
            fn into_iter(self) -> Self::IntoIter { self.0.iter() }
        }
        pub struct Error;
        impl std::fmt::Debug for Error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(\"e\") }
        }
        impl std::fmt::Display for Error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(\"e\") }
        }
        impl std::error::Error for Error {}
    ";
    assert_lines(
        source,
        &[
            "pub struct Error",
            "impl Debug for Error",
            "impl Display for Error",
            "impl core::error::Error for Error",
            "pub struct List<T>(_)",
            "impl<'a, T> IntoIterator for &'a List<T> { type Item = &'a T; type IntoIter = Iter<'a, T> }",
            "pub struct Local(_)",
            "impl !Send for Local",
            "impl !Sync for Local",
            "pub struct Token(_)",
            "impl Clone for Token",
            "impl Copy for Token",
            "impl PartialEq for Token",
            "impl From<Token> for u64",
        ],
    );
}

#[test]
fn what_a_user_may_not_rely_on_is_marked() {
    let source = "
        #[non_exhaustive] pub enum What { Gone, Held(u8), Lost { why: u8 } }
        #[non_exhaustive] pub struct View { pub age: u8 }
        #[doc(hidden)] pub mod inside { pub fn reach() {} }
        pub mod outside { pub fn reach() {} }
        #[doc(hidden)] pub use outside::reach;
    ";
    let lines = [
        "#[non_exhaustive] pub struct View",
        "pub View::age: u8",
        "#[non_exhaustive] pub enum What",
        "What::Gone",
        "What::Held(u8)",
        "What::Lost { why: u8 }",
        "#[doc(hidden)] pub mod inside",
        "#[doc(hidden)] pub fn inside::reach()",
        "pub mod outside",
        "pub fn outside::reach()",
        "#[doc(hidden)] pub use outside::reach as reach",
    ];
    assert_lines(source, &lines);
    let Some(json) = documented(source) else { return };
    let api = Api::read(&json).unwrap();
    let hidden_but = |excused: &[(&str, &str)]| -> Vec<_> {
        let found = examples::hidden_but(&api, excused);
        found.iter().map(|finding| finding.to_string().split(':').next().unwrap().to_owned()).collect()
    };
    assert_eq!(hidden_but(&[]), ["inside", "reach"]);
    assert_eq!(hidden_but(&[("inside", "x"), ("outside", "x")]), ["reach", "outside"]);
}

#[test]
fn a_listing_that_differs_shows_the_lines_that_were_added_and_removed() {
    let new = ["pub fn a()", "pub fn c(u8)"].map(str::to_owned);
    assert_eq!(difference(&["pub fn a()", "pub fn c(u8)"], &new), [] as [&str; 0]);
    assert_eq!(difference(&["pub fn a()", "pub fn b()"], &new), ["- pub fn b()", "+ pub fn c(u8)"]);
    let Some(json) = documented("pub fn a() {}") else { return };
    let root = tempfile::tempdir().unwrap();
    let api = Api::read(&json).unwrap();
    let found = compare(root.path(), &api).unwrap();
    assert!(found.to_string().contains("cargo xtask api --update"), "{found}");
    fs::create_dir_all(root.path().join("crates/tidelock")).unwrap();
    fs::write(root.path().join(LISTING), "pub fn a()\n").unwrap();
    assert_eq!(compare(root.path(), &api), None);
}

#[test]
fn json_of_another_version_is_skipped() {
    let json = serde_json::json!({ "format_version": FORMATS.end() + 1 });
    assert!(Api::read(&json).is_none());
    assert_eq!(inspect(Path::new("/nonexistent"), &json), []);
}
