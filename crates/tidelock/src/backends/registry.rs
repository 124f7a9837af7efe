//! The registry: what is known about a store before it is connected, and which store a URL names.
//!
//! Each store declares its [`Store`] in its own folder; the list of stores is in `mod.rs`. The `config` of
//! each store parses the rest of the URL.

use std::{fmt, pin::Pin, sync::Arc, sync::LazyLock};

use super::{LEFT_OUT, STORES};
#[cfg(feature = "stock")]
use crate::stock::StockStore;
use crate::{
    backend::{Backend, ClientId, Failure},
    clock::Clock,
    error::{Error, Result},
};

/// A store of this build: what is known about it without asking its server.
///
/// [`Locks::stores`](crate::Locks::stores) lists them.
#[non_exhaustive]
pub struct Store {
    /// Its name: also that of its folder, its page, and its first scheme.
    pub name: &'static str,
    /// The schemes of its URLs.
    pub schemes: &'static [&'static str],
    /// The feature of the crate that enables it; `None` if every build has it.
    pub feature: Option<&'static str>,
    /// Whether it needs a server. A store without one can be connected by its name and a colon.
    pub needs_server: bool,
    /// The options of its URLs.
    pub options: &'static [StoreOption],
    /// Whether a path, `/…` or `./…`, is a URL of this store.
    pub(crate) takes_paths: bool,
    /// Connects with another clock than the machine's, if the store keeps its leases in this process.
    pub(crate) on_clock: Option<ConnectOnClock>,
    pub(crate) connect: fn(&str, ClientId) -> Connecting<'_, dyn Backend>,
    #[cfg(feature = "stock")]
    pub(crate) stock: Option<ConnectStock>,
    /// What stock needs in addition to `schema`.
    #[cfg(feature = "stock")]
    pub(crate) stock_schema: Option<fn() -> String>,
    pub(crate) schema: Option<fn() -> String>,
    /// Reads a URL, and shows what it says.
    #[cfg(feature = "testing")]
    pub(crate) read_url: fn(&str) -> Result<String>,
    /// What else it reads that others may have written.
    #[cfg(feature = "testing")]
    pub(crate) readers: &'static [crate::testing::hostile::Reader],
}

/// A store that is being connected.
pub(crate) type Connecting<'a, T> = Pin<Box<dyn Future<Output = Result<Arc<T>>> + Send + 'a>>;

/// Connects a store whose leases run on a given clock.
pub(crate) type ConnectOnClock = for<'a> fn(&'a str, ClientId, &'a Clock) -> Connecting<'a, dyn Backend>;

/// Connects a store that keeps stock.
#[cfg(feature = "stock")]
pub(crate) type ConnectStock = fn(&str) -> Connecting<'_, dyn StockStore>;

/// An option of a store's URLs: `?name=value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreOption {
    /// Its name.
    pub name: &'static str,
    /// Another name for it, used by other clients of the same server.
    pub alias: Option<&'static str>,
    /// What it means to leave it out.
    pub default: OptionDefault,
    /// Its meaning, as a phrase. Literal values are in backticks.
    pub meaning: &'static str,
}

/// What it means to leave out an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionDefault {
    /// The same as a URL with this value.
    Value(&'static str),
    /// In words: something that no value expresses, or that depends on the rest of the URL.
    Words(&'static str),
}

/// A store that this build does not include.
#[allow(dead_code, reason = "a build with every store leaves none out")]
pub(crate) struct LeftOut {
    pub(crate) name: &'static str,
    pub(crate) feature: &'static str,
    /// The only systems on which that feature has an effect, for people.
    pub(crate) only: &'static str,
}

impl Store {
    /// Returns what an administrator loads into the server if clients may not do so; `None` if not needed.
    pub fn schema(&self) -> Option<String> {
        self.schema.map(|schema| schema())
    }

    /// Returns what an administrator also loads to keep [stock](crate::stock); `None` if not needed.
    #[cfg(feature = "stock")]
    pub fn stock_schema(&self) -> Option<String> {
        self.stock_schema.map(|schema| schema())
    }

    /// Returns whether it also keeps [stock](crate::stock).
    #[cfg(feature = "stock")]
    pub fn keeps_stock(&self) -> bool {
        self.stock.is_some()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("name", &self.name)
            .field("schemes", &self.schemes)
            .finish_non_exhaustive()
    }
}

/// The stores of this build.
pub(crate) fn stores() -> &'static [&'static Store] {
    STORES
}

/// The schemes of this build.
pub(crate) fn schemes() -> &'static [&'static str] {
    static SCHEMES: LazyLock<Vec<&str>> =
        LazyLock::new(|| STORES.iter().flat_map(|store| store.schemes).copied().collect());
    &SCHEMES
}

/// Connects the store of a URL on behalf of a client whose leases run on this clock.
pub(crate) async fn backend(url: &str, client: ClientId, clock: &Clock) -> Result<Arc<dyn Backend>> {
    let store = of_url(url)?;
    if clock.is_machine() {
        return (store.connect)(url, client).await;
    }
    match store.on_clock {
        Some(connect) => connect(url, client, clock).await,
        None => Err(clock_refused()),
    }
}

/// Says that a store runs on the clock of a machine.
pub(crate) fn clock_refused() -> Error {
    Error::invalid_option(
        "only a store in memory can run on the clock of a test: use memory: or memory:NAME, or set no clock",
    )
}

fn of_url(url: &str) -> Result<&'static Store> {
    Ok(match scheme(url) {
        None => of_paths()?,
        // Only the scheme is ever shown: the rest may hold a password.
        Some(_) if !url.contains(':') => {
            return Err(Error::invalid_url(format!(
                "a store is named by a URL such as memory:, and this has no scheme (this build has: {})",
                schemes().join(", ")
            )));
        }
        Some(scheme) => of_scheme(scheme).ok_or_else(|| {
            Error::invalid_url(format!(
                "this build of tidelock has no store for the URL scheme {:?} (it has: {}): {}",
                shortened(scheme),
                schemes().join(", "),
                way_out(scheme)
            ))
        })?,
    })
}

/// Connects the store of a URL to keep stock in.
#[cfg(feature = "stock")]
pub(crate) async fn stock(url: &str) -> Result<Arc<dyn StockStore>> {
    let scheme = scheme(url);
    let store = match scheme {
        None => Some(of_paths()?),
        Some(scheme) => of_scheme(scheme),
    };
    if let Some(connect) = store.and_then(|store| store.stock) {
        return connect(url).await;
    }
    let mut keepers: Vec<_> =
        STORES.iter().filter(|store| store.keeps_stock()).map(|store| store.name).collect();
    keepers.sort_unstable();
    let (scheme, keepers) = (scheme.unwrap_or_default(), keepers.join(", "));
    Err(Error::invalid_url(match store {
        Some(_) => format!("{scheme} keeps locks and no stock: use {keepers} for stock"),
        None => format!(
            "this build of tidelock keeps no stock at the URL scheme {:?} (it does at: {keepers}): {}",
            shortened(scheme),
            way_out(scheme)
        ),
    }))
}

/// What a `connect` gives for a backend that it made or could not make.
#[allow(dead_code, reason = "connecting a store in memory cannot fail")]
pub(crate) fn connected<B: Backend>(store: &str, made: Result<B, Failure>) -> Result<Arc<dyn Backend>> {
    made.map(|backend| Arc::new(backend) as _).map_err(|failure| Error::failure(store, None, &failure))
}

/// What a `stock` gives for a store that it made or could not make.
#[cfg(feature = "stock")]
#[allow(dead_code, reason = "connecting a store in memory cannot fail")]
pub(crate) fn stocked<S: StockStore + 'static>(
    store: &str,
    made: Result<S, Failure>,
) -> Result<Arc<dyn StockStore>> {
    made.map(|stock| Arc::new(stock) as _).map_err(|failure| Error::failure(store, None, &failure))
}

/// What is before the first colon; none for a path.
fn scheme(url: &str) -> Option<&str> {
    (!url.starts_with(['/', '.'])).then(|| url.split_once(':').map_or(url, |(scheme, _)| scheme))
}

fn of_scheme(scheme: &str) -> Option<&'static Store> {
    STORES.iter().copied().find(|store| store.schemes.contains(&scheme))
}

fn of_paths() -> Result<&'static Store> {
    STORES.iter().copied().find(|store| store.takes_paths).ok_or_else(|| {
        Error::invalid_url(
            "this build of tidelock has no store in files: enable the crate's feature \"file\" (on Unix), or use another store",
        )
    })
}

/// What to do about a scheme that no store of this build has.
fn way_out(scheme: &str) -> String {
    // The schemes of a store are not known in a build without it; nearly all begin with its name.
    match LEFT_OUT.iter().find(|store| scheme.starts_with(store.name)) {
        Some(LeftOut { feature, only, .. }) => {
            format!("enable the crate's feature {feature:?}{only}, or use another store")
        }
        None => "correct the URL or enable the crate's feature for that store".to_owned(),
    }
}

fn shortened(scheme: &str) -> String {
    scheme.chars().take(32).collect()
}

/// The entries agree with each other, with the list, and with the pages.
#[cfg(test)]
mod tests {
    use std::{collections::HashSet, env, fmt::Write, fs, path::Path};

    use super::*;

    const BEGIN: &str = "<!-- options: from the registry -->\n";
    const END: &str = "<!-- end of options -->\n";
    const UPDATE: &str = "TIDELOCK_UPDATE_DOCS";

    #[test]
    fn each_store_has_schemes_of_its_own_and_the_first_is_its_name() {
        let mut seen = HashSet::new();
        for store in STORES {
            assert_eq!(store.schemes.first(), Some(&store.name));
            assert!(store.schemes.iter().all(|scheme| seen.insert(scheme)), "{store:?}");
        }
        assert_eq!(schemes().len(), seen.len());
    }

    #[test]
    fn no_two_options_of_a_store_have_the_same_name() {
        for store in STORES {
            let mut seen = HashSet::new();
            let mut names =
                store.options.iter().flat_map(|option| [Some(option.name), option.alias]).flatten();
            assert!(names.all(|name| seen.insert(name)), "{store:?}");
        }
    }

    #[test]
    fn the_list_names_the_feature_that_the_entry_names() {
        let list = include_str!("mod.rs");
        for store in STORES {
            let feature = store.feature.map(|feature| format!(" if {feature:?}")).unwrap_or_default();
            let line = format!("\n    {}{feature}", store.name);
            assert!(list.contains(&format!("{line};")) || list.contains(&format!("{line} on ")), "{store:?}");
        }
    }

    async fn connect(url: &str) -> Result<Arc<dyn Backend>> {
        backend(url, ClientId::random(), &Clock::machine()).await
    }

    #[tokio::test]
    async fn a_scheme_without_a_store_is_named_without_what_follows_it() {
        for url in ["oracle://me:secret@host", "redis+tcp://:secret@host", "no scheme"] {
            let error = connect(url).await.unwrap_err();
            assert!(error.is_invalid_url() && !error.to_string().contains("secret"), "{error}");
            assert!(error.to_string().contains("file, memory") || cfg!(not(feature = "file")), "{error}");
            #[cfg(feature = "stock")]
            assert!(stock(url).await.unwrap_err().is_invalid_url());
        }
        for LeftOut { name, feature, .. } in LEFT_OUT {
            let error = connect(&format!("{name}s://host")).await.unwrap_err().to_string();
            assert!(error.contains(&format!("enable the crate's feature {feature:?}")), "{error}");
        }
    }

    #[cfg(feature = "stock")]
    #[tokio::test]
    async fn a_store_without_stock_says_which_have_it() {
        for store in STORES.iter().filter(|store| !store.keeps_stock()) {
            let error = stock(&format!("{}://host", store.name)).await.unwrap_err().to_string();
            assert!(error.contains("keeps locks and no stock: use ") && error.contains("memory"), "{error}");
        }
    }

    /// The pages are for people, who look an option up there before they look into the code.
    #[test]
    fn the_page_of_a_store_has_the_table_of_its_options() {
        for store in STORES {
            let file = format!("docs/backends/{}.md", store.name);
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(&file);
            let page = fs::read_to_string(&path).unwrap();
            let split =
                page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
            let Some((before, (table, after))) = split else {
                panic!("{file} lacks the lines {BEGIN:?} and {END:?} around its options");
            };
            let wanted = table_of(store);
            if table != wanted && env::var_os(UPDATE).is_some() {
                fs::write(&path, [before, BEGIN, &wanted, END, after].concat()).unwrap();
                continue;
            }
            assert!(
                table == wanted,
                "the options in {file} are not those of the registry; to write them there: \
                 {UPDATE}=1 cargo test -p tidelock --all-features --lib registry\n{wanted}"
            );
        }
    }

    fn table_of(store: &Store) -> String {
        if store.options.is_empty() {
            return "\nNone in the URL.\n\n".to_owned();
        }
        let mut table = "\n| option | default | what |\n|---|---|---|\n".to_owned();
        for StoreOption { name, alias, default, meaning } in store.options {
            let alias = alias.map(|alias| format!(", `?{alias}=`")).unwrap_or_default();
            let default = match default {
                OptionDefault::Value("") => "empty".to_owned(),
                OptionDefault::Value(value) => format!("`{value}`"),
                OptionDefault::Words(words) => (*words).to_owned(),
            };
            let _ = writeln!(table, "| `?{name}=`{alias} | {default} | {meaning} |");
        }
        table.push('\n');
        table
    }
}
