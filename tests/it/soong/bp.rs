//! Reads Android.bp: the blueprint language as far as this project uses it.

use std::collections::BTreeMap;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `"text"`
    Text(String),
    /// `true`, `false`
    Flag(bool),
    /// `["a", "b"]`
    List(Vec<String>),
    /// `{ name: value, }`
    Map(Properties),
}

/// Values by name.
pub type Properties = BTreeMap<String, Value>;

/// `kind { … }`
#[derive(Debug)]
pub struct Module {
    /// `rust_library` …
    pub kind: String,
    /// What stands in it.
    pub properties: Properties,
}

impl Module {
    /// A text, where the property is one.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.properties.get(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The texts of a list; none where it is not there.
    pub fn list(&self, name: &str) -> &[String] {
        match self.properties.get(name) {
            Some(Value::List(list)) => list,
            _ => &[],
        }
    }
}

/// All modules of a file, in its order, each with the properties of its `defaults` (which are
/// modules that stand before it): lists are joined, other properties of the module go first.
///
/// # Errors
/// What is not understood.
pub fn modules(text: &str) -> Result<Vec<Module>, String> {
    let mut words = words(text)?.into_iter();
    let mut modules: Vec<Module> = Vec::new();
    while let Some(kind) = words.next() {
        expect(&mut words, "{")?;
        let mut module = Module {
            kind,
            properties: properties(&mut words)?,
        };
        for name in module.list("defaults").to_vec() {
            let from = modules
                .iter()
                .find(|module| module.text("name") == Some(&name))
                .ok_or_else(|| format!("the defaults {name} do not stand before their user"))?;
            inherit(&mut module.properties, &from.properties);
        }
        modules.push(module);
    }
    Ok(modules)
}

fn inherit(to: &mut Properties, from: &Properties) {
    for (name, value) in from {
        match (to.get_mut(name), value) {
            (Some(Value::List(own)), Value::List(more)) => own.extend(more.iter().cloned()),
            (Some(Value::Map(own)), Value::Map(more)) => inherit(own, more),
            (Some(_), _) => {}
            (None, _) => {
                to.insert(name.clone(), value.clone());
            }
        }
    }
}

/// Names, texts with their first quote, and punctuation.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            let end = rest[1..].find('"').ok_or("a text does not end")?;
            if rest[1..=end].contains(['\\', '\n']) {
                return Err(format!("{} is not understood", &rest[..end + 2]));
            }
            words.push(rest[..=end].to_owned());
            end + 2
        } else {
            let length = rest.find(|c| !inside(c)).unwrap_or(rest.len()).max(1);
            if !inside(first) && !"{}[]:,".contains(first) {
                return Err(format!("the character `{first}` is not understood"));
            }
            words.push(rest[..length].to_owned());
            length
        };
        rest = rest[length..].trim_start();
    }
    Ok(words)
}

fn next(words: &mut impl Iterator<Item = String>) -> Result<String, String> {
    words.next().ok_or_else(|| "the file ends early".to_owned())
}

fn expect(words: &mut impl Iterator<Item = String>, word: &str) -> Result<(), String> {
    let found = next(words)?;
    if found == word {
        Ok(())
    } else {
        Err(format!("`{found}` where `{word}` is understood"))
    }
}

fn properties(words: &mut impl Iterator<Item = String>) -> Result<Properties, String> {
    let mut properties = Properties::new();
    loop {
        let name = next(words)?;
        if name == "}" {
            return Ok(properties);
        }
        expect(words, ":")?;
        let value = value(words)?;
        if properties.insert(name.clone(), value).is_some() {
            return Err(format!("{name} is there twice"));
        }
        expect(words, ",")?;
    }
}

fn value(words: &mut impl Iterator<Item = String>) -> Result<Value, String> {
    let word = next(words)?;
    match word.as_str() {
        "true" => Ok(Value::Flag(true)),
        "false" => Ok(Value::Flag(false)),
        "{" => Ok(Value::Map(properties(words)?)),
        "[" => {
            let mut list = Vec::new();
            loop {
                let word = next(words)?;
                match word.strip_prefix('"') {
                    Some(text) => list.push(text.to_owned()),
                    None if word == "]" => return Ok(Value::List(list)),
                    None if word == "," && !list.is_empty() => {}
                    None => return Err(format!("`{word}` in a list")),
                }
            }
        }
        _ => match word.strip_prefix('"') {
            Some(text) => Ok(Value::Text(text.to_owned())),
            None => Err(format!("the value `{word}`")),
        },
    }
}
