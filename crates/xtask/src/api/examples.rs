//! Whether the documentation shows how to use each item.
//!
//! An example on the page of an item, or on the page of a module above it, has to use what can go wrong or has
//! to be awaited: functions that are async or fallible, and types that users create. What remains needs none:
//! a getter, a setter, a variant or a field says all in its line. An item whose text links to one of the same
//! name, as those of `blocking` do, is shown where that one is.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    items::{Api, Item},
    text::{list, text},
};
use crate::check::Finding;

/// Items that need no example although the rule asks for one, each with the reason. A path stands for what is
/// below it, too.
const EXCUSED: &[(&str, &str)] = &[
    ("backends::etcd::bare", "bare requests to compare with, for benchmarks and tests"),
    ("backends::zookeeper::bare", "bare requests to compare with, for benchmarks and tests"),
    ("testing", "parts of the conformance suite; its own cases show how they are used"),
];

/// Hidden items that stay public, each with the reason. A path stands for what is below it, too.
const HIDDEN: &[(&str, &str)] = &[
    ("Once::skewed", "tests of the project run slots on clocks that are off"),
    ("__macros", "what the code of the attribute `locked` calls"),
    ("Locks::on_clock", "tests of the project run the engine on a driven clock and with defects"),
    ("testing::Clock::driven", "a clock with a rate, for the simulation"),
    ("testing::defect", "defects that tests of the project must find"),
    ("testing::hostile", "readers that tests of the project feed"),
];

/// Items that users find and that no example shows.
pub(super) fn unshown(api: &Api<'_>) -> Vec<Finding> {
    unshown_but(api, EXCUSED)
}

fn unshown_but(api: &Api<'_>, excused: &[(&str, &str)]) -> Vec<Finding> {
    let pages = Pages::new(api);
    let all = api.items.iter().filter(|item| !item.hidden && pages.needs(item) && !pages.shows(item));
    let mut all: Vec<&str> = all.map(|item| item.path.as_str()).collect();
    all.sort_unstable();
    let (found, unused) = without(all, excused);
    let found = found.into_iter().map(|path| {
        Finding::new(path, "no example uses it", "add one to its page, or excuse it in api/examples.rs")
    });
    found.chain(unused).collect()
}

/// Hidden items that users can still name.
pub(super) fn hidden(api: &Api<'_>) -> Vec<Finding> {
    hidden_but(api, HIDDEN)
}

pub(super) fn hidden_but(api: &Api<'_>, excused: &[(&str, &str)]) -> Vec<Finding> {
    let paths = api.items.iter().filter(|item| item.hidden).map(|item| item.path.as_str());
    let all: BTreeSet<&str> = paths.chain(api.hidden_aliases()).collect();
    let is_top = |path: &&str| !path.rsplit_once("::").is_some_and(|(above, _)| all.contains(above));
    let (found, unused) = without(all.iter().copied().filter(is_top).collect(), excused);
    let found = found.into_iter().map(|path| {
        let fix = "make it pub(crate), document it, or excuse it in api/examples.rs";
        Finding::new(path, "is public and hidden", fix)
    });
    found.chain(unused).collect()
}

/// The paths that are not excused, and the excuses that nothing needs.
fn without<'a>(paths: Vec<&'a str>, excused: &[(&str, &str)]) -> (Vec<&'a str>, Vec<Finding>) {
    let is_in = |path: &str, above: &str| {
        path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let unused = excused.iter().filter(|(above, _)| !paths.iter().any(|path| is_in(path, above)));
    let unused = unused.map(|(above, _)| {
        Finding::new(*above, "is excused and needs no excuse", "remove it from api/examples.rs")
    });
    let unused = unused.collect();
    let found = paths.into_iter().filter(|path| !excused.iter().any(|(above, _)| is_in(path, above)));
    (found.collect(), unused)
}

/// The documentation as readers see it: a page for each module, type and function, with its examples.
#[derive(Debug)]
struct Pages<'a> {
    items: BTreeMap<&'a str, &'a Item<'a>>,
    ids: BTreeMap<u64, &'a Item<'a>>,
    /// The code of the examples on each page.
    code: BTreeMap<&'a str, String>,
    /// Functions by the page that they are on.
    functions: BTreeMap<&'a str, Vec<&'a Item<'a>>>,
}

impl<'a> Pages<'a> {
    fn new(api: &'a Api<'a>) -> Self {
        let items: BTreeMap<_, _> = api.items.iter().map(|item| (item.path.as_str(), item)).collect();
        let ids = api.items.iter().map(|item| (item.json["id"].as_u64().unwrap_or_default(), item)).collect();
        let mut pages = Self { items, ids, code: BTreeMap::new(), functions: BTreeMap::new() };
        for item in &api.items {
            let page = pages.page(item);
            pages.code.entry(page).or_default().push_str(&examples(text(&item.json["docs"])));
            if item.kind == "function" {
                pages.functions.entry(page).or_default().push(item);
            }
        }
        pages
    }

    /// The path of the page that an item is on.
    fn page(&self, item: &'a Item<'a>) -> &'a str {
        match item.parent.as_deref() {
            Some(parent) if self.items.get(parent).is_some_and(|above| above.kind != "module") => parent,
            _ => &item.path,
        }
    }

    fn needs(&self, item: &'a Item<'a>) -> bool {
        match item.kind {
            "trait" => true,
            "function" => asks_for_more(item),
            "struct" | "enum" | "union" => self
                .functions
                .get(item.path.as_str())
                .is_some_and(|all| all.iter().any(|function| asks_for_more(function) || creates(function))),
            _ => false,
        }
    }

    fn shows(&self, item: &'a Item<'a>) -> bool {
        let page = self.page(item);
        let code = self.code.get(page).map_or("", String::as_str);
        let name = text(&item.json["name"]);
        let own = match item.kind {
            // An example implements the functions that a trait requires.
            "function" if self.items.get(page).is_some_and(|above| above.kind == "trait") => !code.is_empty(),
            "function" => uses(code, name, true) || !examples(text(&item.json["docs"])).is_empty(),
            _ => !code.is_empty(),
        };
        own || self.above(page).any(|code| uses(code, name, item.kind == "function"))
            || self.twin(item).is_some_and(|twin| self.shows(twin))
    }

    /// The examples of the modules above a page.
    fn above(&self, page: &'a str) -> impl Iterator<Item = &str> {
        let mut next = self.items.get(page).and_then(|item| item.parent.as_deref());
        std::iter::from_fn(move || {
            let module = next?;
            next = self.items.get(module).and_then(|item| item.parent.as_deref());
            Some(self.code.get(module).map_or("", String::as_str))
        })
    }

    /// The other item of the same name that the text of an item links to.
    fn twin(&self, item: &Item<'_>) -> Option<&'a Item<'a>> {
        let links = item.json["links"].as_object()?;
        links
            .values()
            .filter_map(|id| self.ids.get(&id.as_u64()?).copied())
            .find(|other| other.path != item.path && other.json["name"] == item.json["name"])
    }
}

/// Whether a function is async or fallible.
fn asks_for_more(item: &Item<'_>) -> bool {
    let function = &item.json["inner"]["function"];
    let output = &function["sig"]["output"];
    let path = text(&output["resolved_path"]["path"]);
    let future = output["impl_trait"].to_string().contains("\"Future\"");
    function["header"]["is_async"] == true || future || path.rsplit("::").next() == Some("Result")
}

/// Whether a function of a type creates it.
fn creates(item: &Item<'_>) -> bool {
    let sig = &item.json["inner"]["function"]["sig"];
    let first = list(&sig["inputs"]).first().map_or("", |input| text(&input[0]));
    first != "self" && sig["output"]["generic"] == "Self"
}

/// The Rust code in a text, without the fences.
fn examples(docs: &str) -> String {
    let mut code = String::new();
    let mut fence = None;
    for line in docs.lines() {
        match (line.trim_start().strip_prefix("```"), fence) {
            (Some(_), Some(_)) => fence = None,
            (Some(words), None) => fence = Some(is_rust(words)),
            (None, Some(true)) => code.extend([line, "\n"]),
            (None, _) => {}
        }
    }
    code
}

/// Whether rustdoc takes a block for Rust.
fn is_rust(words: &str) -> bool {
    let known = ["rust", "no_run", "ignore", "should_panic", "compile_fail"];
    words
        .split([',', ' '])
        .filter(|word| !word.is_empty())
        .all(|word| known.contains(&word) || word.starts_with("edition"))
}

/// Whether code names an item; a function is called.
fn uses(code: &str, name: &str, call: bool) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name).any(|(at, _)| {
        let rest = &code[at + name.len()..];
        let called = rest.starts_with('(') || rest.starts_with("::<");
        !code[..at].ends_with(word) && !rest.starts_with(word) && (called || !call)
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tests::documented, *};

    #[track_caller]
    fn assert_unshown(source: &str, excused: &[(&str, &str)], paths: &[&str]) {
        let Some(json) = documented(source) else { return };
        let found = unshown_but(&Api::read(&json).unwrap(), excused);
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        let found: Vec<_> = found.iter().filter_map(|finding| finding.split_once(": ")).collect();
        assert_eq!(found.iter().map(|(path, _)| *path).collect::<Vec<_>>(), paths, "{found:?}");
    }

    #[test]
    fn functions_that_are_async_or_fallible_need_an_example() {
        let source = "
            pub struct Lock;
            /// ```
            /// take().await;
            /// ```
            pub mod a { pub async fn take() {} pub async fn give() {} pub fn taken() {} }
            /// ```text
            /// parse()
            /// ```
            pub fn parse() -> Result<(), ()> { Ok(()) }
            pub fn later() -> impl Future<Output = ()> { async {} }
            /// ```no_run
            /// let it = 1;
            /// ```
            pub async fn own() {}
            #[doc(hidden)] pub async fn hidden() {}
        ";
        assert_unshown(source, &[], &["a::give", "later", "parse"]);
        assert_unshown(source, &[("a", "x"), ("later", "x"), ("pars", "x")], &["parse", "pars"]);
    }

    #[test]
    fn an_example_anywhere_on_a_page_counts_for_all_of_the_page() {
        let source = "
            pub struct Lock;
            impl Lock {
                pub fn new() -> Self { Lock }
                /// ```
                /// lock.take().await; lock.taken(); lock.untake::<u8>().await;
                /// ```
                pub async fn take(&self) {}
                pub async fn untake<T>(&self) {}
                pub async fn give(&self) {}
                pub fn is_taken(&self) -> bool { true }
            }
            pub struct Bare;
            impl Bare { pub fn new() -> Self { Bare } }
            pub struct View { pub a: u8 }
            impl View { pub fn a(&self) -> u8 { 1 } }
        ";
        assert_unshown(source, &[], &["Bare", "Lock::give"]);
    }

    #[test]
    fn an_item_is_shown_where_its_namesake_is() {
        let source = "
            /// ```
            /// lock.take().await;
            /// ```
            pub struct Lock;
            impl Lock { pub async fn take(&self) {} pub async fn give(&self) {} }
            pub mod blocking {
                /// [`Lock`](crate::Lock) without async.
                pub struct Lock;
                impl Lock {
                    /// See [`take`](crate::Lock::take).
                    pub fn take(&self) -> Result<(), ()> { Ok(()) }
                    /// See [`give`](crate::Lock::give).
                    pub fn give(&self) -> Result<(), ()> { Ok(()) }
                }
            }
        ";
        assert_unshown(source, &[], &["Lock::give", "blocking::Lock::give"]);
    }
}
