//! From the name of a lock to the path of its node, and back.
//!
//! A slash in a name is a slash in the path, and what ZooKeeper and other clients can hold stays as it
//! is: a user of Curator names the same path. All else is written as `%` and two digits for each byte.

use crate::{model::escape::unescape, model::name::Name};

use super::nodes::Contender;

/// What stands for nothing between two slashes, or at an end.
const EMPTY: &str = "%";

/// The path of a lock.
pub(crate) fn path(root: &str, name: &Name) -> String {
    let mut path = String::with_capacity(root.len() + name.as_str().len() + 1);
    path.push_str(root);
    for element in name.as_str().split('/') {
        path.push('/');
        put_element(&mut path, element);
    }
    path
}

/// The name of the lock at a path below the root, if it is one of ours.
pub(crate) fn name(root: &str, path: &str) -> Option<Name> {
    let below = path.strip_prefix(root)?.strip_prefix('/')?;
    let mut text = String::with_capacity(below.len());
    for (index, element) in below.split('/').enumerate() {
        if index > 0 {
            text.push('/');
        }
        if element != EMPTY {
            text.push_str(&unescape(element)?);
        }
    }
    let name = Name::new(&text).ok()?;
    // What somebody else wrote in another way is not this lock.
    (self::path(root, &name) == path).then_some(name)
}

/// All paths above and at this one, but for the top.
pub(crate) fn with_parents(path: &str) -> impl Iterator<Item = &str> {
    let inner = path.match_indices('/').map(|(at, _)| &path[..at]).filter(|parent| !parent.is_empty());
    inner.chain(std::iter::once(path))
}

fn put_element(path: &mut String, element: &str) {
    if element.is_empty() {
        return path.push_str(EMPTY);
    }
    // A lock below another must not look like somebody who stands in line there.
    let misleading = matches!(element, "." | ".." | "zookeeper") || Contender::read(element).is_some();
    for (at, c) in element.char_indices() {
        let last = element.len() == at + c.len_utf8();
        let plain = !matches!(c, '%' | '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..);
        if plain && !(misleading && (last || element.starts_with('.'))) {
            path.push(c);
        } else {
            escape(path, c);
        }
    }
}

/// Writes a character as its bytes.
pub(crate) fn escape(out: &mut String, c: char) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        const DIGITS: [char; 16] =
            ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
        out.extend(['%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> String {
        path("/locks", &Name::new(name).unwrap())
    }

    #[test]
    fn plain_names_are_plain_paths() {
        for plain in ["orders/42", "a b", "Job-7_x.y:z", "é", "名", "a{b}", "x@y"] {
            assert_eq!(of(plain), format!("/locks/{plain}"));
        }
        assert_eq!(of("zookeeper"), "/locks/zookeepe%72");
        assert_eq!(of("a/../."), "/locks/a/%2E%2E/%2E");
        assert_eq!(of("a//🔒%"), "/locks/a/%/%F0%9F%94%92%25");
        assert_eq!(of("a/x-lock-0000000001"), "/locks/a/x-lock-000000000%31");
    }

    #[test]
    fn a_path_is_read_as_the_name_it_was_made_of() {
        for text in [
            "a",
            "a/",
            "/a",
            "//",
            "/",
            "..",
            ".",
            "...",
            "%",
            "%2F",
            "a%/b",
            "zookeeper/x",
            "🔒",
            "\u{e000}",
            "\u{ffff}",
            "q__lock__0000000001",
            "\u{10ffff}",
        ] {
            assert_eq!(name("/locks", &of(text)).unwrap().as_str(), text);
        }
        for foreign in ["/locks/%2f", "/other/a", "/locks/%41", "/locks", "/locks/a%zz"] {
            assert_eq!(name("/locks", foreign), None, "{foreign}");
        }
    }

    #[test]
    fn parents_come_first() {
        assert_eq!(with_parents("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b", "/a/b/c"]);
    }
}
