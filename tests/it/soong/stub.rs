//! Writes the Rust that AOSP's AIDL compiler would make of our `.aidl` files, as far as types go:
//! the crate `dev_blockd`, to be type-checked against and never run.

use super::aidl::{parse, Field, File, Item, Method, Type};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Where a type stands; AOSP writes it differently in each place.
#[derive(Clone, Copy)]
enum Place {
    Field,
    Argument,
    Answer,
}

/// The text of the crate.
///
/// # Errors
/// What is not understood, and in which file.
pub fn generate(sources: &[(String, String)]) -> Result<String, String> {
    let mut files = BTreeMap::new();
    for (path, text) in sources {
        let file = parse(text).map_err(|why| format!("{path}: {why}"))?;
        if !path.ends_with(&format!("{}.aidl", file.name)) {
            return Err(format!("{path} declares {}", file.name));
        }
        files.insert(file.name.clone(), file);
    }
    let mut modules = String::new();
    for file in files.values() {
        if file.package != "dev.blockd" {
            return Err(format!("{} is in the package {}", file.name, file.package));
        }
        let text = Generator { files: &files }
            .module(file)
            .map_err(|why| format!("{}: {why}", file.name))?;
        modules.push_str(&text);
    }
    Ok(format!(
        "#![allow(missing_docs, non_snake_case, unused_variables)]\n\
         pub mod aidl {{ pub mod dev {{ pub mod blockd {{\n{modules}}} }} }}\n"
    ))
}

struct Generator<'a> {
    files: &'a BTreeMap<String, File>,
}

impl Generator<'_> {
    fn module(&self, file: &File) -> Result<String, String> {
        for import in &file.imports {
            let known = import.strip_prefix("dev.blockd.");
            if !known.is_some_and(|name| self.files.contains_key(name)) {
                return Err(format!("imports {import}, which is not there"));
            }
        }
        let name = &file.name;
        let body = match &file.item {
            Item::Enum(enumerators) => {
                let mut text = format!(
                    "#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]\n\
                     pub struct r#{name}(pub i32);\nimpl r#{name} {{\n"
                );
                for (constant, number) in enumerators {
                    let _ = writeln!(text, "pub const r#{constant}: Self = Self({number});");
                }
                text + "}\n"
            }
            Item::Parcelable(fields) => self.parcelable(file, fields)?,
            Item::Interface { constants, methods } => {
                let mut text = self.interface(file, methods)?;
                for (constant, number) in constants {
                    let _ = writeln!(text, "pub const r#{constant}: i32 = {number};");
                }
                text
            }
        };
        Ok(format!("pub mod r#{name} {{\n{body}}}\n"))
    }

    fn parcelable(&self, file: &File, fields: &[Field]) -> Result<String, String> {
        let (mut types, mut values) = (String::new(), String::new());
        for Field { of, name, default } in fields {
            let written = self.of(file, of, Place::Field, "")?;
            let value = match default.as_deref() {
                None => "Default::default()".to_owned(),
                Some(value) => match value.split_once('.') {
                    None => value.to_owned(),
                    Some((of_enum, constant)) if of_enum == of.name => {
                        format!("{written}::r#{constant}")
                    }
                    Some(_) => return Err(format!("the default {value} of {name}")),
                },
            };
            let _ = writeln!(types, "pub r#{name}: {written},");
            let _ = writeln!(values, "r#{name}: {value},");
        }
        let name = &file.name;
        Ok(format!(
            "#[derive(Debug)]\npub struct r#{name} {{\n{types}}}\n\
             impl Default for r#{name} {{\nfn default() -> Self {{ Self {{\n{values}}} }}\n}}\n"
        ))
    }

    fn interface(&self, file: &File, methods: &[Method]) -> Result<String, String> {
        let name = &file.name;
        let bare = name
            .strip_prefix('I')
            .ok_or("an interface whose name does not begin with I")?;
        let mut text = format!(
            "pub trait r#{name}: binder::Interface + Send {{\n\
             fn get_descriptor() -> &'static str where Self: Sized {{ \"{}.{name}\" }}\n",
            file.package
        );
        for method in methods {
            let mut lifetimes = "'a".to_owned();
            let mut arguments = "&'a self".to_owned();
            for (number, (argument, of)) in method.arguments.iter().enumerate() {
                let lifetime = format!("'l{} ", number + 1);
                let written = self.of(file, of, Place::Argument, &lifetime)?;
                if written.contains('\'') {
                    let _ = write!(lifetimes, ", {}", lifetime.trim_end());
                }
                let _ = write!(arguments, ", _arg_{argument}: {written}");
            }
            let answer = match &method.answer {
                Some(of) => self.of(file, of, Place::Answer, "")?,
                None => "()".to_owned(),
            };
            let _ = writeln!(
                text,
                "fn r#{}<{lifetimes}>({arguments}) -> binder::Result<{answer}>;",
                method.name
            );
        }
        let _ = writeln!(
            text,
            "}}\n\
             impl binder::FromIBinder for dyn r#{name} {{\n\
             fn try_from(_: binder::SpIBinder) \
             -> Result<binder::Strong<Self>, binder::StatusCode> {{ unimplemented!() }}\n}}\n\
             impl std::fmt::Debug for dyn r#{name} {{\n\
             fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result \
             {{ unimplemented!() }}\n}}\n\
             pub struct Bn{bare}(());\n\
             impl Bn{bare} {{\n\
             pub fn new_binder<T: r#{name} + Sync + Send + 'static>(_: T, \
             _: binder::BinderFeatures) -> binder::Strong<dyn r#{name}> {{ unimplemented!() }}\n}}"
        );
        Ok(text)
    }

    /// `of` as Rust, in `file`, at `place`, borrowed for `lifetime` where it is borrowed.
    fn of(&self, file: &File, of: &Type, place: Place, lifetime: &str) -> Result<String, String> {
        let name = of.name.as_str();
        let refuse = |what: &str| Err(format!("{what} `{name}` is not understood"));
        let scalar = match name {
            "boolean" => Some("bool"),
            "byte" => Some("i8"),
            "int" => Some("i32"),
            "long" => Some("i64"),
            "float" => Some("f32"),
            "double" => Some("f64"),
            _ => None,
        };
        let declared = self.files.get(name).map(|file| &file.item);
        let full = format!("dev.blockd.{name}");
        if declared.is_some() && !file.imports.contains(&full) {
            return refuse("without an import, the type");
        }
        let path = format!("crate::aidl::dev::blockd::r#{name}::r#{name}");
        let strong = format!("binder::Strong<dyn {path}>");
        let copied = scalar.is_some() || matches!(declared, Some(Item::Enum(_)));
        // What stands where it is owned, and what where it is borrowed.
        let (owned, borrowed) = match (name, scalar, declared) {
            (_, Some(scalar), _) => (scalar, scalar),
            ("String", ..) => ("String", "str"),
            ("ParcelFileDescriptor", ..) => (
                "binder::ParcelFileDescriptor",
                "binder::ParcelFileDescriptor",
            ),
            (_, _, Some(Item::Interface { .. })) => (strong.as_str(), strong.as_str()),
            (_, _, Some(_)) => (path.as_str(), path.as_str()),
            _ => return refuse("the type"),
        };
        // Neither has a default, so that AOSP's fields of them are always optional.
        let no_default =
            name == "ParcelFileDescriptor" || matches!(declared, Some(Item::Interface { .. }));
        if of.array {
            if of.nullable || no_default {
                return refuse("an array of this form of");
            }
            // An array of byte is the one type of unsigned elements.
            let element = if name == "byte" { "u8" } else { owned };
            return Ok(match place {
                Place::Argument => format!("&{lifetime}[{element}]"),
                Place::Field | Place::Answer => format!("Vec<{element}>"),
            });
        }
        if copied {
            return match of.nullable {
                true => refuse("a nullable"),
                false => Ok(owned.to_owned()),
            };
        }
        let optional = of.nullable || (no_default && matches!(place, Place::Field));
        Ok(match (place, optional) {
            (Place::Argument, false) => format!("&{lifetime}{borrowed}"),
            (Place::Argument, true) => format!("Option<&{lifetime}{borrowed}>"),
            (_, false) => owned.to_owned(),
            (_, true) => format!("Option<{owned}>"),
        })
    }
}
