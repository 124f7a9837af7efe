//! What the attribute has to know of the function: its arguments, which of them is the client, and what it returns.

use syn::{FnArg, GenericArgument, Ident, Pat, PathArguments, Result, ReturnType, Type};

/// A function that can be locked.
pub(crate) struct Signature {
    /// Every variable that the arguments bind.
    pub(crate) arguments: Vec<String>,
    pub(crate) has_self: bool,
    /// The arguments that are clients.
    clients: Vec<Ident>,
    pub(crate) returns: Type,
}

impl Signature {
    /// Reads it. `outcome` says that the function has to return a `Result<Outcome<T>, E>`.
    pub(crate) fn of(function: &syn::Signature, outcome: bool) -> Result<Self> {
        if let Some(constness) = function.constness {
            return Err(syn::Error::new_spanned(constness, "a const function cannot wait for a lock"));
        }
        let (mut arguments, mut clients) = (Vec::new(), Vec::new());
        for argument in &function.inputs {
            let FnArg::Typed(argument) = argument else { continue };
            bound(&argument.pat, &mut arguments);
            if let (Pat::Ident(name), true) = (&*argument.pat, is_client(&argument.ty)) {
                clients.push(name.ident.clone());
            }
        }
        Ok(Self {
            arguments: arguments.iter().map(ToString::to_string).collect(),
            has_self: function.receiver().is_some(),
            clients,
            returns: returned(function, outcome)?,
        })
    }

    /// The argument that is a client, if there is one.
    pub(crate) fn client(&self) -> Result<Option<&Ident>> {
        match self.clients.as_slice() {
            [_, second, ..] => Err(syn::Error::new(
                second.span(),
                "two arguments are clients: say which one to use, with `locks = …`",
            )),
            clients => Ok(clients.first()),
        }
    }

    /// The end of a message about an argument that is none.
    pub(crate) fn which_arguments(&self) -> String {
        if self.arguments.is_empty() {
            "the function has no arguments".to_owned()
        } else {
            format!("the arguments are: {}", self.arguments.join(", "))
        }
    }
}

/// The variables that a pattern binds, as far as arguments have such patterns.
fn bound(pattern: &Pat, into: &mut Vec<Ident>) {
    match pattern {
        Pat::Ident(name) => into.push(name.ident.clone()),
        Pat::Tuple(tuple) => tuple.elems.iter().for_each(|part| bound(part, into)),
        Pat::TupleStruct(parts) => parts.elems.iter().for_each(|part| bound(part, into)),
        Pat::Struct(fields) => fields.fields.iter().for_each(|field| bound(&field.pat, into)),
        Pat::Reference(inner) => bound(&inner.pat, into),
        Pat::Paren(inner) => bound(&inner.pat, into),
        _ => {}
    }
}

/// Whether a type is `Locks`, by reference or not.
fn is_client(of: &Type) -> bool {
    match of {
        Type::Reference(reference) => is_client(&reference.elem),
        Type::Paren(inner) => is_client(&inner.elem),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "Locks"),
        _ => false,
    }
}

/// The return type: one that can carry an error of the lock.
fn returned(function: &syn::Signature, outcome: bool) -> Result<Type> {
    const WRONG: &str =
        "a locked function returns a Result whose error type takes a tidelock::Error: the lock may be lost";
    let ReturnType::Type(_, returns) = &function.output else {
        return Err(syn::Error::new(function.ident.span(), WRONG));
    };
    let last = match &**returns {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    };
    // Aliases have such names, too.
    let Some(last) = last.filter(|last| last.ident.to_string().ends_with("Result")) else {
        return Err(syn::Error::new_spanned(returns, WRONG));
    };
    if outcome {
        let first = match &last.arguments {
            PathArguments::AngleBracketed(arguments) => arguments.args.first(),
            _ => None,
        };
        let is_outcome = |of: &Type| matches!(of, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Outcome"));
        if !matches!(first, Some(GenericArgument::Type(of)) if is_outcome(of)) {
            return Err(syn::Error::new_spanned(
                returns,
                "with `once_per`, the function returns a Result<Outcome<T>, E>: somebody else may have run it; the body ends with Ok(Outcome::Ran(…))",
            ));
        }
    }
    Ok((**returns).clone())
}
