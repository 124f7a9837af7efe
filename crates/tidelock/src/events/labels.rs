//! Labels of metrics, of which those without a value are left out.

use std::sync::Arc;

use metrics::SharedString;

/// What a label may be given.
pub(super) trait Value {
    /// Its text, if it has one.
    fn text(self) -> Option<SharedString>;
}

impl Value for &'static str {
    fn text(self) -> Option<SharedString> {
        Some(SharedString::const_str(self))
    }
}

impl Value for Option<Arc<str>> {
    fn text(self) -> Option<SharedString> {
        self.map(SharedString::from_shared)
    }
}

/// The labels that have a value.
macro_rules! labels {
    ($($label:literal => $value:expr),*) => {{
        let mut labels = Vec::with_capacity(3);
        $(
            if let Some(text) = $crate::events::labels::Value::text($value) {
                labels.push(metrics::Label::new($label, text));
            }
        )*
        labels
    }};
}

pub(super) use labels;
