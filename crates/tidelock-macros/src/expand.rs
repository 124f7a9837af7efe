//! The function with the lock around its body.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{ItemFn, Result};

use crate::{options::Options, signature::Signature, template, times};

/// Returns the function, which acquires the lock, runs its body, and releases the lock.
pub(crate) fn expand(options: &Options, function: &ItemFn) -> Result<TokenStream> {
    let ItemFn { attrs, vis, sig, block } = function;
    let signature = Signature::of(sig, options.once_per.is_some())?;
    let name = template::name(&options.name, &signature)?;
    let lock = lock(options, &name)?;
    let run = if options.shared.is_some() { quote!(try_run_read) } else { quote!(try_run) };
    let held = options.held.clone().unwrap_or_else(|| format_ident!("_held"));
    let returns = &signature.returns;
    let statements = &block.stmts;
    let (facade, body, wait) = if sig.asyncness.is_some() {
        // The type is said first, so that `?` and `return` in the body know it.
        let body = quote!(move |#held: ::tidelock::Holding| async move {
            #[allow(unreachable_code, clippy::diverging_sub_expression, reason = "it is never run")]
            if false {
                let never: #returns = ::core::unreachable!();
                return never;
            }
            #(#statements)*
        });
        (quote!(::tidelock), body, quote!(.await))
    } else {
        let body = quote!(move |#held: ::tidelock::Holding| -> #returns { #(#statements)* });
        (quote!(::tidelock::blocking), body, quote!())
    };
    let client = match &options.locks {
        Some(code) => quote!(#code),
        None => match signature.client()? {
            Some(argument) => quote!(#argument),
            None => quote!(#facade::default_locks()?),
        },
    };
    let flatten = options.once_per.as_ref().map(|_| quote!(.map(::tidelock::__macros::flatten)));
    Ok(quote! {
        #(#attrs)*
        #vis #sig {
            let __tidelock_lock = {
                let client: &#facade::Locks = &#client;
                client #lock
            };
            __tidelock_lock.#run(#body) #wait #flatten
        }
    })
}

/// Returns the calls that make the lock of a client.
fn lock(options: &Options, name: &TokenStream) -> Result<TokenStream> {
    let mut calls = match &options.once_per {
        Some(value) => {
            let period = times::period(value)?;
            quote!(.once(#name, #period))
        }
        None if options.shared.is_some() => quote!(.rw_lock(#name)),
        None => quote!(.mutex(#name)),
    };
    let times = [("ttl", &options.ttl), ("wait", &options.wait), ("hold_at_least", &options.hold_at_least)];
    for (option, value) in times {
        if let Some(value) = value {
            let (option, time) = (format_ident!("{option}"), times::duration(value)?);
            calls.extend(quote!(.#option(#time)));
        }
    }
    Ok(calls)
}
