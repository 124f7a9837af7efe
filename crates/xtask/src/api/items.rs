//! The public items of a crate, out of rustdoc's JSON: which there are, at which path, and their text.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::text::{Text, join, list, only, text};

/// The versions of rustdoc's JSON that are read here: those of Rust 1.89 to 1.95.
pub(super) const FORMATS: std::ops::RangeInclusive<u64> = 53..=57;

/// Automatic traits whose loss breaks users; types that lack one are listed.
const AUTOMATIC: [&str; 3] = ["Send", "Sync", "Unpin"];

/// Traits that the compiler adds to a derived one. Users cannot name them, and they differ between versions.
const COMPILERS: [&str; 2] = ["StructuralPartialEq", "TrivialClone"];

/// A public item.
#[derive(Clone, Debug)]
pub(super) struct Item<'a> {
    /// Where users find it, without the name of the crate. The crate has an empty path.
    pub(super) path: String,
    /// The path of the module, type or trait that it is in.
    pub(super) parent: Option<String>,
    /// What it is, as rustdoc calls it.
    pub(super) kind: &'a str,
    /// Whether it, or what it is in, has `#[doc(hidden)]`.
    pub(super) hidden: bool,
    /// The item as rustdoc writes it.
    pub(super) json: &'a Value,
}

/// A crate, as its users see it.
#[derive(Debug)]
pub(super) struct Api<'a> {
    pub(super) items: Vec<Item<'a>>,
    /// Further paths of items that are in the list: the path, and the id of the item.
    aliases: Vec<(String, bool, &'a Value)>,
    text: Text<'a>,
    index: &'a Value,
}

impl<'a> Api<'a> {
    /// Walks from the crate down. `None` if the JSON has a form that is not known here.
    pub(super) fn read(json: &'a Value) -> Option<Self> {
        if !json["format_version"].as_u64().is_some_and(|version| FORMATS.contains(&version)) {
            return None;
        }
        let text = Text { paths: &json["paths"], public: BTreeMap::new() };
        let mut api = Self { items: Vec::new(), aliases: Vec::new(), text, index: &json["index"] };
        api.walk(&json["root"]);
        Some(api)
    }

    /// Breadth first, hidden items last, so that an item has the shortest path that is not hidden.
    fn walk(&mut self, root: &'a Value) {
        let mut queue = VecDeque::from([Seen { id: root, path: None, parent: None, hidden: false }]);
        let mut later = VecDeque::new();
        while let Some(mut seen) = queue.pop_front().or_else(|| later.pop_front()) {
            let json = &self.index[seen.id.to_string()];
            let Some((kind, inner)) = only(&json["inner"]) else {
                // An item of another crate that is exported again.
                self.aliases.extend(seen.path.map(|path| (path, seen.hidden, seen.id)));
                continue;
            };
            if !seen.hidden && is(json, "doc(hidden)") {
                seen.hidden = true;
                later.push_back(seen);
                continue;
            }
            if kind == "use" {
                let name = text(&inner["name"]);
                // Rustdoc names the module or enum that a glob is about.
                if inner["is_glob"] == true {
                    let of = &self.index[inner["id"].to_string()]["inner"];
                    let items = list(&of["module"]["items"]).iter().chain(list(&of["enum"]["variants"]));
                    queue.extend(items.map(|id| Seen { id, ..seen.clone() }));
                } else {
                    let path = below(seen.parent.as_deref(), name);
                    queue.push_back(Seen { id: &inner["id"], path: Some(path), ..seen });
                }
                continue;
            }
            let name = text(&json["name"]);
            let path = match (&seen.path, &seen.parent) {
                (Some(path), _) => path.clone(),
                (None, None) => String::new(),
                (None, parent) => below(parent.as_deref(), name),
            };
            let id = json["id"].as_u64().unwrap_or_default();
            if self.text.public.contains_key(&id) {
                self.aliases.push((path, seen.hidden, seen.id));
                continue;
            }
            self.text.public.insert(id, path.clone());
            for id in self.children(kind, inner) {
                queue.push_back(Seen { id, path: None, parent: Some(path.clone()), hidden: seen.hidden });
            }
            self.items.push(Item { path, parent: seen.parent, kind, hidden: seen.hidden, json });
        }
    }

    /// The ids of what is in an item.
    fn children(&self, kind: &str, inner: &'a Value) -> Vec<&'a Value> {
        let own: Vec<&Value> = match kind {
            "module" | "trait" => list(&inner["items"]).iter().collect(),
            "enum" => list(&inner["variants"]).iter().collect(),
            "struct" => list(&inner["kind"]["plain"]["fields"]).iter().collect(),
            "union" => list(&inner["fields"]).iter().collect(),
            _ => Vec::new(),
        };
        let impls = if kind == "trait" { &[] } else { list(&inner["impls"]) };
        let inherent = impls
            .iter()
            .map(|id| &self.index[id.to_string()]["inner"]["impl"])
            .filter(|of| of["trait"].is_null())
            .flat_map(|of| list(&of["items"]));
        own.into_iter().chain(inherent).collect()
    }

    /// The listing: a line for each item, those of a type below it.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = BTreeSet::new();
        for item in self.items.iter().filter(|item| !item.path.is_empty()) {
            let exhaustive = if is(item.json, "non_exhaustive") { "#[non_exhaustive] " } else { "" };
            let line = format!("{}{exhaustive}{}", hidden(item.hidden), self.line(item));
            lines.insert((item.path.clone(), line));
        }
        for (path, is_hidden, id) in &self.aliases {
            let line =
                format!("{}pub use {} as {path}", hidden(*is_hidden), self.text.name(id, &Value::Null));
            lines.insert((path.clone(), line));
        }
        let items = self.index.as_object().into_iter().flat_map(|items| items.values());
        lines.extend(items.filter(|item| item["crate_id"] == 0).filter_map(|item| self.implementation(item)));
        lines.into_iter().map(|(_, line)| line).collect()
    }

    /// Further paths of items that only hidden exports have.
    pub(super) fn hidden_aliases(&self) -> impl Iterator<Item = &str> {
        self.aliases.iter().filter(|(_, hidden, _)| *hidden).map(|(path, ..)| path.as_str())
    }

    fn line(&self, item: &Item<'_>) -> String {
        let (kind, path, text) = (item.kind, &item.path, &self.text);
        let of = &item.json["inner"][kind];
        let (params, wheres) = text.generics(&of["generics"]);
        let in_trait = item.json["visibility"] == "default";
        let public = if in_trait { "" } else { "pub " };
        match kind {
            "module" => format!("pub mod {path}"),
            "function" => {
                let body = if in_trait && of["has_body"] == true { " { .. }" } else { "" };
                format!("{public}{}{body}", text.function(path, of))
            }
            "struct" => match only(&of["kind"]) {
                Some(("tuple", fields)) => {
                    format!("pub struct {path}{params}{}{wheres}", self.tuple(fields, "pub "))
                }
                Some((_, plain)) if plain["has_stripped_fields"] == true => {
                    format!("pub struct {path}{params}{wheres} {{ .. }}")
                }
                _ => format!("pub struct {path}{params}{wheres}"),
            },
            "struct_field" => format!("pub {path}: {}", text.ty(of)),
            "enum" => format!("pub enum {path}{params}{wheres}"),
            "variant" => match only(&of["kind"]) {
                Some(("tuple", fields)) => format!("{path}{}", self.tuple(fields, "")),
                Some((_, fields)) => {
                    let fields = join(list(&fields["fields"]), ", ", |id| {
                        let field = &self.index[id.to_string()];
                        let name = super::text::text(&field["name"]);
                        format!("{name}: {}", text.ty(&field["inner"]["struct_field"]))
                    });
                    format!("{path} {{ {fields} }}")
                }
                None => path.clone(),
            },
            "trait" => {
                let bounds = text.bounds(&of["bounds"]);
                let bounds = if bounds.is_empty() { bounds } else { format!(": {bounds}") };
                format!("pub trait {path}{params}{bounds}{wheres}")
            }
            "type_alias" => format!("pub type {path}{params} = {}{wheres}", text.ty(&of["type"])),
            "constant" => format!("pub const {path}: {}", text.ty(&of["type"])),
            "assoc_const" => format!("{public}const {path}: {}", text.ty(&of["type"])),
            "assoc_type" => {
                let bounds = text.bounds(&of["bounds"]);
                let bounds = if bounds.is_empty() { bounds } else { format!(": {bounds}") };
                format!("{public}type {path}{params}{bounds}{wheres}")
            }
            "static" => format!("pub static {path}: {}", text.ty(&of["type"])),
            other => format!("pub {other} {path}"),
        }
    }

    /// The fields of a tuple; those that are not public are `_`.
    fn tuple(&self, fields: &Value, public: &str) -> String {
        let fields =
            join(list(fields), ", ", |id| match &self.index[id.to_string()]["inner"]["struct_field"] {
                Value::Null => "_".to_owned(),
                ty => format!("{public}{}", self.text.ty(ty)),
            });
        format!("({fields})")
    }

    /// The line of an implementation of a trait, below the type that it is for.
    fn implementation(&self, item: &Value) -> Option<(String, String)> {
        let of = &item["inner"]["impl"];
        let by = &of["trait"];
        if by.is_null() || !of["blanket_impl"].is_null() {
            return None;
        }
        let name = self.text.path(by);
        let negative = of["is_negative"] == true;
        let automatic = of["is_synthetic"] == true;
        let is_lack = negative && AUTOMATIC.contains(&name.as_str());
        if COMPILERS.contains(&name.as_str()) || (automatic && !is_lack) {
            return None;
        }
        let target = match &of["for"]["borrowed_ref"]["type"] {
            Value::Null => &of["for"],
            behind => behind,
        };
        let target = &target["resolved_path"]["id"];
        let path = target.as_u64().and_then(|id| self.text.public.get(&id));
        if path.is_none() && self.index[target.to_string()]["crate_id"] == 0 {
            return None;
        }
        let (params, wheres) = self.text.generics(&of["generics"]);
        let types = list(&of["items"]).iter().filter_map(|id| {
            let item = &self.index[id.to_string()];
            let ty = &item["inner"]["assoc_type"]["type"];
            (!ty.is_null()).then(|| format!("type {} = {}", text(&item["name"]), self.text.ty(ty)))
        });
        let types = types.collect::<Vec<_>>().join("; ");
        let types = if types.is_empty() { types } else { format!(" {{ {types} }}") };
        let not = if negative { "!" } else { "" };
        let line = format!("impl{params} {not}{name} for {}{wheres}{types}", self.text.ty(&of["for"]));
        // A blank sorts before the items of the type, and the rest after all types.
        let key = path.map_or_else(|| format!("~{line}"), |path| format!("{path} {line}"));
        Some((key, line))
    }
}

/// An item on the way down, and how it was reached.
#[derive(Clone, Debug)]
struct Seen<'a> {
    id: &'a Value,
    /// The path, where it is exported under one of its own.
    path: Option<String>,
    parent: Option<String>,
    hidden: bool,
}

fn below(parent: Option<&str>, name: &str) -> String {
    match parent {
        None | Some("") => name.to_owned(),
        Some(parent) => format!("{parent}::{name}"),
    }
}

/// Whether an item has an attribute. Its form differs between versions; its name does not.
fn is(item: &Value, attribute: &str) -> bool {
    list(&item["attrs"]).iter().any(|has| has.to_string().contains(attribute))
}

fn hidden(is_hidden: bool) -> &'static str {
    if is_hidden { "#[doc(hidden)] " } else { "" }
}
