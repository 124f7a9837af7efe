//! What stands in the parentheses of the attribute: the name, and options.

use syn::{
    Expr, ExprLit, Ident, Lit, LitStr, Path, Result, Token,
    parse::{Parse, ParseStream},
};

/// Every option there is, for the message about one that is none.
const KNOWN: &str = "locks, ttl, wait, hold_at_least, shared, once_per, held";

/// The name, and how the lock is acquired.
pub(crate) struct Options {
    pub(crate) name: LitStr,
    pub(crate) locks: Option<Expr>,
    pub(crate) ttl: Option<Value>,
    pub(crate) wait: Option<Value>,
    pub(crate) hold_at_least: Option<Value>,
    pub(crate) shared: Option<Ident>,
    pub(crate) once_per: Option<Value>,
    pub(crate) held: Option<Ident>,
}

/// A time or a period.
pub(crate) enum Value {
    Text(LitStr),
    Code(Expr),
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.parse::<LitStr>().map_err(|error| {
            syn::Error::new(
                error.span(),
                "the name of the lock comes first, such as #[locked(\"orders/{id}\")]",
            )
        })?;
        let mut options = Self {
            name,
            locks: None,
            ttl: None,
            wait: None,
            hold_at_least: None,
            shared: None,
            once_per: None,
            held: None,
        };
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            options.read(input)?;
        }
        options.check()?;
        Ok(options)
    }
}

impl Options {
    fn read(&mut self, input: ParseStream<'_>) -> Result<()> {
        let option = input.parse::<Path>()?;
        let Some(option) = option.get_ident().cloned() else {
            return Err(syn::Error::new_spanned(option, format!("not an option: there are {KNOWN}")));
        };
        let is_new = match option.to_string().as_str() {
            "locks" => put(&mut self.locks, value(&option, input)?),
            "ttl" => put(&mut self.ttl, text_or_code(&option, input)?),
            "wait" => put(&mut self.wait, text_or_code(&option, input)?),
            "hold_at_least" => put(&mut self.hold_at_least, text_or_code(&option, input)?),
            "shared" => put(&mut self.shared, option.clone()),
            "once_per" => put(&mut self.once_per, text_or_code(&option, input)?),
            "held" => put(&mut self.held, variable(&option, input)?),
            other => {
                return Err(syn::Error::new(
                    option.span(),
                    format!("unknown option `{other}`: there are {KNOWN}"),
                ));
            }
        };
        if is_new { Ok(()) } else { Err(syn::Error::new(option.span(), format!("`{option}` is set twice"))) }
    }

    /// Options that contradict each other.
    fn check(&self) -> Result<()> {
        let Some(once_per) = &self.once_per else { return Ok(()) };
        let other = [
            ("shared", self.shared.is_some()),
            ("wait", self.wait.is_some()),
            ("hold_at_least", self.hold_at_least.is_some()),
        ];
        match other.into_iter().find(|(_, is_set)| *is_set) {
            Some((other, _)) => Err(syn::Error::new(
                once_per.span(),
                format!(
                    "`once_per` cannot be used with `{other}`: a job runs alone, does not wait, and is done for its slot"
                ),
            )),
            None => Ok(()),
        }
    }
}

impl Value {
    pub(crate) fn span(&self) -> proc_macro2::Span {
        match self {
            Self::Text(text) => text.span(),
            Self::Code(code) => syn::spanned::Spanned::span(code),
        }
    }
}

/// Sets an option, and says whether it was not set before.
fn put<T>(option: &mut Option<T>, value: T) -> bool {
    option.replace(value).is_none()
}

fn value(option: &Ident, input: ParseStream<'_>) -> Result<Expr> {
    if !input.peek(Token![=]) {
        return Err(syn::Error::new(option.span(), format!("`{option}` needs a value: `{option} = …`")));
    }
    input.parse::<Token![=]>()?;
    input.parse()
}

fn text_or_code(option: &Ident, input: ParseStream<'_>) -> Result<Value> {
    Ok(match value(option, input)? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Value::Text(text),
        Expr::Lit(other) => {
            return Err(syn::Error::new_spanned(
                other,
                format!("`{option}` is a time with a unit, such as `{option} = \"30s\"`"),
            ));
        }
        code => Value::Code(code),
    })
}

fn variable(option: &Ident, input: ParseStream<'_>) -> Result<Ident> {
    match value(option, input)? {
        Expr::Path(path) if path.path.get_ident().is_some() => path.path.require_ident().cloned(),
        other => Err(syn::Error::new_spanned(
            other,
            "`held` is the name of a variable for the body, such as `held = lock`",
        )),
    }
}
