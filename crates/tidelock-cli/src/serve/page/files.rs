//! HTML, style and scripts of the page, as they are sent.

use hyper::header::{HeaderName, HeaderValue};

use super::super::answer::{self, Answer};

/// A file of the page.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::serve) struct File {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

macro_rules! file {
    ($name:literal, $kind:literal) => {
        File { name: $name, kind: $kind, text: include_str!(concat!("web/", $name)) }
    };
}

pub(super) static INDEX: File = file!("index.html", "text/html; charset=utf-8");

static FILES: [File; 13] = [
    file!("style.css", "text/css; charset=utf-8"),
    file!("table.css", "text/css; charset=utf-8"),
    file!("detail.css", "text/css; charset=utf-8"),
    file!("icon.svg", "image/svg+xml"),
    file!("page.js", "text/javascript; charset=utf-8"),
    file!("stream.js", "text/javascript; charset=utf-8"),
    file!("locks.js", "text/javascript; charset=utf-8"),
    file!("table.js", "text/javascript; charset=utf-8"),
    file!("detail.js", "text/javascript; charset=utf-8"),
    file!("drawing.js", "text/javascript; charset=utf-8"),
    file!("store.js", "text/javascript; charset=utf-8"),
    file!("dialogs.js", "text/javascript; charset=utf-8"),
    file!("text.js", "text/javascript; charset=utf-8"),
];

/// Finds a file by its name.
pub(super) fn find(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

impl File {
    pub(super) fn answer(&self) -> Answer {
        answer::file(self.kind, self.text)
    }
}

/// What a browser may do with an answer: run and show what this server sends as files, ask this server, and nothing else.
/// Text that somebody put into a name or a label is never run, even if the page had a defect.
const RULES: [(&str, &str); 5] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Adds the rules for browsers.
pub(super) fn protect(answer: &mut Answer) {
    for (name, value) in RULES {
        answer.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_no_inline_code_and_nothing_from_elsewhere() {
        for File { name, text, .. } in FILES.iter().chain([&INDEX]) {
            for bad in ["style=", "onclick=", "innerHTML", "insertAdjacentHTML", "eval(", "document.write"] {
                assert!(!text.contains(bad), "{name}: {bad}");
            }
            let urls = text.matches("http://").count() + text.matches("https://").count();
            assert_eq!(urls, text.matches("http://www.w3.org/2000/svg").count(), "{name}");
        }
        assert!(!INDEX.text.contains("<script>") && !INDEX.text.contains("<style>"));
    }

    #[test]
    fn every_file_that_is_referred_to_is_there() {
        for File { name, text, .. } in FILES.iter().chain([&INDEX]) {
            for part in text.split("/ui/").skip(1).chain(text.split("from \"./").skip(1)) {
                let used = part.split(['"', '\'', '?', '`', ')']).next().unwrap_or_default();
                if used.contains('.') {
                    assert!(find(used).is_some(), "{name} refers to {used:?}");
                }
            }
        }
    }
}
