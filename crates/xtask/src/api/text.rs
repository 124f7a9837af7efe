//! Signatures as text: types, bounds and generics out of rustdoc's JSON.
//!
//! A type of the library has the path that users write, one of the standard library its last name, and any
//! other its full path. Paths as the source spells them would change with every import.

use std::collections::BTreeMap;

use serde_json::Value;

/// Writes types with the paths that users write.
#[derive(Debug)]
pub(super) struct Text<'a> {
    /// What rustdoc knows about every item, also of other crates.
    pub(super) paths: &'a Value,
    /// The public path of each public item of the library, by its id.
    pub(super) public: BTreeMap<u64, String>,
}

impl Text<'_> {
    /// The name of an item in a signature.
    pub(super) fn name(&self, id: &Value, spelled: &Value) -> String {
        if let Some(path) = id.as_u64().and_then(|id| self.public.get(&id)) {
            return path.clone();
        }
        let path: Vec<_> = list(&self.paths[id.to_string()]["path"]).iter().map(text).collect();
        match path.as_slice() {
            // `Result` and `Error` are names of the library, too.
            ["core" | "alloc" | "std", .., last] if !self.public.values().any(|public| public == last) => {
                (*last).to_owned()
            }
            [] => text(spelled).to_owned(),
            path => path.join("::"),
        }
    }

    /// A path with its arguments: a type or a trait.
    pub(super) fn path(&self, path: &Value) -> String {
        format!("{}{}", self.name(&path["id"], &path["path"]), self.args(&path["args"]))
    }

    pub(super) fn ty(&self, ty: &Value) -> String {
        let Some((kind, inner)) = only(ty) else { return "_".to_owned() };
        match kind {
            "resolved_path" => self.path(inner),
            "generic" => text(inner).to_owned(),
            "primitive" if inner == "never" => "!".to_owned(),
            "primitive" => text(inner).to_owned(),
            "tuple" => match list(inner) {
                [one] => format!("({},)", self.ty(one)),
                many => format!("({})", join(many, ", ", |ty| self.ty(ty))),
            },
            "slice" => format!("[{}]", self.ty(inner)),
            "array" => format!("[{}; {}]", self.ty(&inner["type"]), text(&inner["len"])),
            "borrowed_ref" => {
                let lifetime = inner["lifetime"].as_str().map_or(String::new(), |name| format!("{name} "));
                let mutable = if inner["is_mutable"] == true { "mut " } else { "" };
                format!("&{lifetime}{mutable}{}", self.closed(&inner["type"]))
            }
            "raw_pointer" => {
                let mutable = if inner["is_mutable"] == true { "mut" } else { "const" };
                format!("*{mutable} {}", self.closed(&inner["type"]))
            }
            "impl_trait" => format!("impl {}", self.bounds(inner)),
            "dyn_trait" => {
                let mut bounds = vec![join(list(&inner["traits"]), " + ", |bound| self.trait_bound(bound))];
                bounds.extend(inner["lifetime"].as_str().map(str::to_owned));
                format!("dyn {}", bounds.join(" + "))
            }
            "qualified_path" => {
                let (base, name) = (self.ty(&inner["self_type"]), text(&inner["name"]));
                let args = self.args(&inner["args"]);
                match &inner["trait"] {
                    Value::Null => format!("{base}::{name}{args}"),
                    by if text(&by["path"]).is_empty() => format!("{base}::{name}{args}"),
                    by => format!("<{base} as {}>::{name}{args}", self.path(by)),
                }
            }
            "function_pointer" => {
                let inputs = join(list(&inner["sig"]["inputs"]), ", ", |input| self.ty(&input[1]));
                let any = self.any_lifetimes(&inner["generic_params"]);
                format!("{any}fn({inputs}){}", self.output(&inner["sig"]["output"]))
            }
            // Written out, so that it shows in the listing instead of vanishing.
            other => format!("{{{other}}}"),
        }
    }

    /// A type behind a reference: several bounds need parentheses there.
    fn closed(&self, ty: &Value) -> String {
        let text = self.ty(ty);
        let several = (text.starts_with("dyn ") || text.starts_with("impl ")) && text.contains(" + ");
        if several { format!("({text})") } else { text }
    }

    /// ` -> T`, or nothing for the empty tuple.
    pub(super) fn output(&self, ty: &Value) -> String {
        if ty.is_null() { String::new() } else { format!(" -> {}", self.ty(ty)) }
    }

    fn args(&self, args: &Value) -> String {
        let Some((kind, inner)) = only(args) else { return String::new() };
        if kind == "parenthesized" {
            let inputs = join(list(&inner["inputs"]), ", ", |ty| self.ty(ty));
            return format!("({inputs}){}", self.output(&inner["output"]));
        }
        let mut all: Vec<_> = list(&inner["args"]).iter().map(|arg| self.arg(arg)).collect();
        all.extend(list(&inner["constraints"]).iter().map(|constraint| {
            let name = format!("{}{}", text(&constraint["name"]), self.args(&constraint["args"]));
            match only(&constraint["binding"]) {
                Some(("equality", term)) => format!("{name} = {}", self.arg(term)),
                Some((_, bounds)) => format!("{name}: {}", self.bounds(bounds)),
                None => name,
            }
        }));
        if all.is_empty() { String::new() } else { format!("<{}>", all.join(", ")) }
    }

    /// An argument of a generic item: a type, a lifetime or a constant.
    fn arg(&self, arg: &Value) -> String {
        match only(arg) {
            Some(("type", ty)) => self.ty(ty),
            Some(("lifetime", name)) => text(name).to_owned(),
            Some(("const" | "constant", constant)) => text(&constant["expr"]).to_owned(),
            _ => "_".to_owned(),
        }
    }

    pub(super) fn bounds(&self, bounds: &Value) -> String {
        join(list(bounds), " + ", |bound| match only(bound) {
            Some(("trait_bound", bound)) => self.trait_bound(bound),
            Some(("outlives", lifetime)) => text(lifetime).to_owned(),
            // An older form has the names, a newer one says what each of them is.
            Some(("use", names)) => {
                let name = |name: &Value| only(name).map_or(text(name), |(_, name)| text(name)).to_owned();
                format!("use<{}>", join(list(names), ", ", name))
            }
            _ => "_".to_owned(),
        })
    }

    fn trait_bound(&self, bound: &Value) -> String {
        let maybe = if bound["modifier"] == "maybe" { "?" } else { "" };
        format!("{}{maybe}{}", self.any_lifetimes(&bound["generic_params"]), self.path(&bound["trait"]))
    }

    /// `for<'a> `, or nothing.
    fn any_lifetimes(&self, params: &Value) -> String {
        let names = join(list(params), ", ", |param| text(&param["name"]).to_owned());
        if names.is_empty() { names } else { format!("for<{names}> ") }
    }

    /// `<'a, T: Bound>` and ` where …` of an item.
    pub(super) fn generics(&self, generics: &Value) -> (String, String) {
        let params: Vec<_> = list(&generics["params"]).iter().filter_map(|param| self.param(param)).collect();
        let params = if params.is_empty() { String::new() } else { format!("<{}>", params.join(", ")) };
        let wheres = join(list(&generics["where_predicates"]), ", ", |predicate| match only(predicate) {
            Some(("bound_predicate", of)) => {
                let any = self.any_lifetimes(&of["generic_params"]);
                format!("{any}{}: {}", self.ty(&of["type"]), self.bounds(&of["bounds"]))
            }
            Some(("lifetime_predicate", of)) => {
                let outlives = join(list(&of["outlives"]), " + ", |name| text(name).to_owned());
                format!("{}: {outlives}", text(&of["lifetime"]))
            }
            Some((_, of)) => format!("{} = {}", self.ty(&of["lhs"]), self.arg(&of["rhs"])),
            None => "_".to_owned(),
        });
        let wheres = if wheres.is_empty() { wheres } else { format!(" where {wheres}") };
        (params, wheres)
    }

    /// A generic parameter; `None` for one that stands for an `impl Trait` among the arguments.
    fn param(&self, param: &Value) -> Option<String> {
        let name = text(&param["name"]);
        let (kind, of) = only(&param["kind"])?;
        let with = |bounds: String| if bounds.is_empty() { bounds } else { format!(": {bounds}") };
        match kind {
            "lifetime" => {
                Some(format!("{name}{}", with(join(list(&of["outlives"]), " + ", |by| text(by).to_owned()))))
            }
            "const" => {
                let default = of["default"].as_str().map_or(String::new(), |value| format!(" = {value}"));
                Some(format!("const {name}: {}{default}", self.ty(&of["type"])))
            }
            _ if of["is_synthetic"] == true => None,
            _ => {
                let default = &of["default"];
                let default =
                    if default.is_null() { String::new() } else { format!(" = {}", self.ty(default)) };
                Some(format!("{name}{}{default}", with(self.bounds(&of["bounds"]))))
            }
        }
    }

    /// A function with this path, without `pub`.
    pub(super) fn function(&self, path: &str, function: &Value) -> String {
        let header = &function["header"];
        let words = [("is_const", "const "), ("is_async", "async "), ("is_unsafe", "unsafe ")];
        let words: String =
            words.iter().filter(|(key, _)| header[*key] == true).map(|(_, word)| *word).collect();
        let (params, wheres) = self.generics(&function["generics"]);
        let inputs = join(list(&function["sig"]["inputs"]), ", ", |input| {
            let (name, ty) = (text(&input[0]), self.ty(&input[1]));
            match (name, ty.as_str()) {
                ("self", "Self") => "self".to_owned(),
                ("self", "&Self") => "&self".to_owned(),
                ("self", "&mut Self") => "&mut self".to_owned(),
                _ => format!("{name}: {ty}"),
            }
        });
        format!("{words}fn {path}{params}({inputs}){}{wheres}", self.output(&function["sig"]["output"]))
    }
}

/// The one key of an object and its value: how rustdoc writes an enum.
pub(super) fn only(value: &Value) -> Option<(&str, &Value)> {
    value.as_object()?.iter().next().map(|(key, value)| (key.as_str(), value))
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn join(values: &[Value], by: &str, text: impl Fn(&Value) -> String) -> String {
    values.iter().map(text).collect::<Vec<_>>().join(by)
}
