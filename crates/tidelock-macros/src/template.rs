//! The name of the lock: text with arguments of the function in it.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, ExprField, Ident, LitStr, Member, Result};

use crate::signature::Signature;

/// Returns code for the name.
pub(crate) fn name(template: &LitStr, signature: &Signature) -> Result<TokenStream> {
    let text = template.value();
    let mistake = |why: String| syn::Error::new(template.span(), why);
    if text.is_empty() {
        return Err(mistake("the name of the lock is empty".to_owned()));
    }
    let (mut format, mut arguments) = (String::new(), Vec::new());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(['{', '}']) {
        let (before, brace) = rest.split_at(at);
        format.push_str(before);
        if brace.starts_with("{{") || brace.starts_with("}}") {
            format.push_str(&brace[..2]);
            rest = &brace[2..];
            continue;
        }
        let inside = brace.strip_prefix('{').and_then(|inside| inside.split_once('}'));
        let Some((argument, after)) = inside else {
            return Err(mistake(
                "a brace stands alone in the name: write {{ or }} for the character".to_owned(),
            ));
        };
        arguments.push(argument_of(argument, template, signature)?);
        format.push_str("{}");
        rest = after;
    }
    format.push_str(rest);
    let format = LitStr::new(&format, template.span());
    Ok(quote!(::std::format!(#format #(, #arguments)*)))
}

/// Reads `id`, `order.id` or `self.id`.
fn argument_of(text: &str, template: &LitStr, signature: &Signature) -> Result<Expr> {
    let mistake = |why: String| syn::Error::new(template.span(), why);
    let mut parts = text.split('.');
    let first = parts.next().unwrap_or_default();
    let part = |part: &str| {
        syn::parse_str::<Ident>(part).map(|mut ident| {
            ident.set_span(template.span());
            ident
        })
    };
    if first == "self" {
        if !signature.has_self {
            return Err(mistake("the name has `{self…}`, but the function has no self".to_owned()));
        }
    } else if part(first).is_err() {
        return Err(mistake(format!(
            "`{{{text}}}` is not an argument: write its name, such as {{id}} or {{order.id}}; it is formatted with Display"
        )));
    } else if !signature.arguments.iter().any(|argument| argument == first) {
        return Err(mistake(format!("the name has `{{{first}}}`, but {}", signature.which_arguments())));
    }
    let first = if first == "self" { Ident::new("self", template.span()) } else { part(first)? };
    let mut code: Expr = syn::parse_quote!(#first);
    for field in parts {
        let member = match field.parse::<u32>() {
            Ok(index) => Member::from(index as usize),
            Err(_) => Member::from(part(field).map_err(|_| {
                mistake(format!("`{{{text}}}` is not a field: write names and dots, such as {{order.id}}"))
            })?),
        };
        code = Expr::Field(ExprField {
            attrs: Vec::new(),
            base: Box::new(code),
            dot_token: syn::Token![.](template.span()),
            member,
        });
    }
    Ok(code)
}
