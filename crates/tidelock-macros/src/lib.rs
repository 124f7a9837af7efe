//! The attribute `locked` of tidelock. Use it as `tidelock::locked`, with the feature `macros`.
//!
//! | file | what is in it |
//! |---|---|
//! | `options` | what stands behind the name: `ttl = "30s"` |
//! | `times` | times as text: `1m30s` |
//! | `template` | the name, and which arguments are in it |
//! | `signature` | the function's arguments and its return type |
//! | `expand` | the function with the lock around its body |

mod expand;
mod options;
mod signature;
mod template;
mod times;

use proc_macro::TokenStream;
use quote::quote;
use syn::{ItemFn, parse_macro_input};

use crate::options::Options;

/// Runs a function under a lock: acquires it before the body, and releases it after the body on every path.
///
/// The name may have arguments of the function in it, formatted with `Display`: `{id}`, also fields such as
/// `{order.id}` and `{self.id}`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidelock::Result<()> {
/// use tidelock::{Locks, locked};
///
/// #[locked("orders/{id}", ttl = "10s", wait = "5s")]
/// async fn ship(locks: &Locks, id: u64) -> tidelock::Result<String> {
///     Ok(format!("order {id} is shipped"))
/// }
///
/// let locks = Locks::connect("memory:").await?;
/// assert_eq!(ship(&locks, 42).await?, "order 42 is shipped");
/// # Ok(()) }
/// ```
///
/// The function returns a `Result` whose error type takes a `tidelock::Error` (`E: From<tidelock::Error>`): the lock
/// may not be acquired in time, or may be lost. An async body is dropped at its next await when the lock is lost, as in
/// `Mutex::try_run`. Nothing can stop a body without async: there, a loss is returned when it has ended.
///
/// # The client
///
/// It is, in this order: the option `locks = …`, an argument of type `Locks` or `&Locks`, or the client that was given
/// to `tidelock::set_default`. Functions without async take those of `tidelock::blocking`.
///
/// # Options
///
/// | option | meaning |
/// |---|---|
/// | `locks = self.locks` | the client |
/// | `ttl = "30s"` | how long the lock lives after this process dies |
/// | `wait = "5s"` | how long to wait; `"0s"` does not wait |
/// | `hold_at_least = "30s"` | for how long others are kept out, even if the body ends earlier |
/// | `shared` | a read lock: with other readers, without writers |
/// | `once_per = "15m"` | at most once in each slot of a period, also `"week"` and `"month"`; the function returns a `Result<Outcome<T>, E>` |
/// | `held = lock` | a variable of the body: the `Holding`, with the fencing token |
///
/// A time is a text such as `"250ms"`, `"1m30s"` or `"1h"`, or an expression of type `Duration` (`Period` for
/// `once_per`).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidelock::Result<()> {
/// use tidelock::{Locks, Outcome, locked};
///
/// struct Reports {
///     locks: Locks,
///     team: String,
/// }
///
/// impl Reports {
///     #[locked("report/{self.team}", locks = self.locks, once_per = "1d", held = lock)]
///     async fn write(&self) -> tidelock::Result<Outcome<u64>> {
///         Ok(Outcome::Ran(lock.token().get()))
///     }
/// }
///
/// let reports = Reports { locks: Locks::connect("memory:").await?, team: "sales".into() };
/// assert!(matches!(reports.write().await?, Outcome::Ran(_)));
/// assert!(matches!(reports.write().await?, Outcome::Done(_)));
/// # Ok(()) }
/// ```
#[proc_macro_attribute]
pub fn locked(options: TokenStream, function: TokenStream) -> TokenStream {
    let function = parse_macro_input!(function as ItemFn);
    let code = syn::parse::<Options>(options).and_then(|options| expand::expand(&options, &function));
    code.unwrap_or_else(|mistake| {
        // The function stays there for those who call it: the mistake is the only error.
        let (mistake, ItemFn { attrs, vis, sig, .. }) = (mistake.to_compile_error(), &function);
        quote! {
            #mistake
            #(#attrs)*
            #[allow(unused_variables, reason = "the body that uses them is left out")]
            #vis #sig { ::core::unreachable!() }
        }
    })
    .into()
}
