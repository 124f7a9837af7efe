//! Times and periods as text, read when the program is compiled.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{LitStr, Result};

use crate::options::Value;

/// The units of a time and their milliseconds, from long to short.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Returns code for a `Duration`.
pub(crate) fn duration(value: &Value) -> Result<TokenStream> {
    match value {
        Value::Text(text) => {
            in_millis(text).map(|millis| quote!(::core::time::Duration::from_millis(#millis)))
        }
        Value::Code(code) => Ok(quote!(#code)),
    }
}

/// Returns code for a `Period`.
pub(crate) fn period(value: &Value) -> Result<TokenStream> {
    let text = match value {
        Value::Text(text) => text,
        Value::Code(code) => return Ok(quote!(#code)),
    };
    let span = text.span();
    Ok(match text.value().as_str() {
        "week" => quote_spanned!(span=> ::tidelock::Period::weekly()),
        "month" => quote_spanned!(span=> ::tidelock::Period::monthly()),
        _ => {
            let millis = in_millis(text)?;
            if millis == 0 || millis % 1_000 != 0 {
                return Err(syn::Error::new(span, "a period has whole seconds, at least one"));
            }
            quote_spanned!(span=> ::tidelock::Period::every(::core::time::Duration::from_millis(#millis)))
        }
    })
}

fn in_millis(text: &LitStr) -> Result<u64> {
    read(&text.value()).ok_or_else(|| {
        syn::Error::new(text.span(), "not a time: write numbers and units, such as 250ms, 5s, 1m30s or 1h")
    })
}

/// The sum of the parts of a time, each with its unit, the longer units first.
fn read(text: &str) -> Option<u64> {
    let (mut rest, mut units, mut sum) = (text, &UNITS[..], 0_u64);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len()));
        let place = units.iter().position(|(name, _)| *name == unit)?;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(units[place].1)?)?;
        (rest, units) = (after, &units[place + 1..]);
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_time_has_numbers_and_units_and_the_longer_units_first() {
        for (text, millis) in
            [("250ms", 250), ("0s", 0), ("5s", 5_000), ("1m30s", 90_000), ("1d2h", 93_600_000)]
        {
            assert_eq!(read(text), Some(millis), "{text}");
        }
        for text in ["", "5", "s", "30s1m", "5s5s", "1.5h", "-5s", "5 s", "99999999999999999999s"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
