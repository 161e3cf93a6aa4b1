//! Reads the part of AIDL that this project uses, and refuses the rest by name.

use std::iter::Peekable;
use std::vec::IntoIter;

/// One `.aidl` file.
#[derive(Debug)]
pub struct File {
    /// `dev.blockd`
    pub package: String,
    /// Full names.
    pub imports: Vec<String>,
    /// What it declares.
    pub name: String,
    /// How.
    pub item: Item,
}

/// A declaration.
#[derive(Debug)]
pub enum Item {
    /// Backed by an `int`: names and numbers.
    Enum(Vec<(String, i32)>),
    /// Fields.
    Parcelable(Vec<Field>),
    /// Constants and methods.
    Interface {
        /// `const int`.
        constants: Vec<(String, i32)>,
        /// Methods; where it is oneway none has an answer.
        methods: Vec<Method>,
    },
}

/// A field of a parcelable.
#[derive(Debug)]
pub struct Field {
    /// Type.
    pub of: Type,
    /// Name.
    pub name: String,
    /// Literal behind `=`: a number, `true`, `false` or `Enum.NAME`.
    pub default: Option<String>,
}

/// A method.
#[derive(Debug)]
pub struct Method {
    /// Name.
    pub name: String,
    /// `None` = void.
    pub answer: Option<Type>,
    /// All of them `in`.
    pub arguments: Vec<(String, Type)>,
}

/// A type.
#[derive(Debug)]
pub struct Type {
    /// Name, without its package.
    pub name: String,
    /// `[]`
    pub array: bool,
    /// `@nullable`
    pub nullable: bool,
}

/// Reads one file.
///
/// # Errors
/// What is not understood, and before which word.
pub fn parse(text: &str) -> Result<File, String> {
    let mut parser = Parser(words(text)?.into_iter().peekable());
    let file = parser.file()?;
    match parser.0.next() {
        None => Ok(file),
        Some(word) => Err(format!("`{word}` behind the declaration of {}", file.name)),
    }
}

/// Splits into identifiers (with dots), numbers and single characters.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("/*") {
            rest.find("*/").ok_or("a comment does not end")? + 2
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else {
            let inside = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            let length = rest.find(|c| !inside(c)).unwrap_or(rest.len()).max(1);
            if !inside(first) && !"{}()[];,=@\"".contains(first) {
                return Err(format!("the character `{first}` is not understood"));
            }
            words.push(rest[..length].to_owned());
            length
        };
        rest = rest[length..].trim_start();
    }
    Ok(words)
}

fn number(word: &str) -> Result<i32, String> {
    word.parse()
        .map_err(|_| format!("`{word}` is no plain number"))
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

struct Parser(Peekable<IntoIter<String>>);

impl Parser {
    fn next(&mut self) -> Result<String, String> {
        self.0
            .next()
            .ok_or_else(|| "the file ends early".to_owned())
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        let found = self.next()?;
        if found == word {
            Ok(())
        } else {
            Err(format!("`{found}` where `{word}` is understood"))
        }
    }

    /// Takes `word` if it is the next.
    fn take(&mut self, word: &str) -> bool {
        self.0.next_if(|next| next == word).is_some()
    }

    fn name(&mut self) -> Result<String, String> {
        let word = self.next()?;
        if is_name(&word) {
            Ok(word)
        } else {
            Err(format!("`{word}` where a name is understood"))
        }
    }

    fn dotted(&mut self) -> Result<String, String> {
        let word = self.next()?;
        if word.split('.').all(is_name) {
            Ok(word)
        } else {
            Err(format!("`{word}` where a dotted name is understood"))
        }
    }

    fn file(&mut self) -> Result<File, String> {
        self.expect("package")?;
        let package = self.dotted()?;
        self.expect(";")?;
        let mut imports = Vec::new();
        while self.take("import") {
            imports.push(self.dotted()?);
            self.expect(";")?;
        }
        let int_backed = self.take("@");
        if int_backed {
            for word in ["Backing", "(", "type", "=", "\"", "int", "\"", ")"] {
                self.expect(word)?;
            }
        }
        let oneway = self.take("oneway");
        let kind = self.next()?;
        let name = self.name()?;
        self.expect("{")?;
        let item = match (kind.as_str(), int_backed, oneway) {
            ("enum", true, false) => Item::Enum(self.enumerators()?),
            ("parcelable", false, false) => Item::Parcelable(self.fields()?),
            ("interface", false, _) => self.interface(oneway)?,
            _ => return Err(format!("a `{kind}` of this form ({name})")),
        };
        Ok(File {
            package,
            imports,
            name,
            item,
        })
    }

    fn enumerators(&mut self) -> Result<Vec<(String, i32)>, String> {
        let mut enumerators = Vec::new();
        while !self.take("}") {
            let name = self.name()?;
            self.expect("=")?;
            enumerators.push((name, number(&self.next()?)?));
            self.expect(",")?;
        }
        Ok(enumerators)
    }

    fn fields(&mut self) -> Result<Vec<Field>, String> {
        let mut fields = Vec::new();
        while !self.take("}") {
            let of = self.of()?;
            let name = self.name()?;
            let default = self
                .take("=")
                .then(|| self.dotted_or_number())
                .transpose()?;
            self.expect(";")?;
            fields.push(Field { of, name, default });
        }
        Ok(fields)
    }

    fn dotted_or_number(&mut self) -> Result<String, String> {
        let word = self.next()?;
        if word.split('.').all(is_name) || number(&word).is_ok() {
            Ok(word)
        } else {
            Err(format!("`{word}` where a simple value is understood"))
        }
    }

    fn interface(&mut self, oneway: bool) -> Result<Item, String> {
        let (mut constants, mut methods) = (Vec::new(), Vec::new());
        while !self.take("}") {
            if self.take("const") {
                self.expect("int")?;
                let name = self.name()?;
                self.expect("=")?;
                constants.push((name, number(&self.next()?)?));
            } else {
                methods.push(self.method(oneway)?);
            }
            self.expect(";")?;
        }
        Ok(Item::Interface { constants, methods })
    }

    fn method(&mut self, oneway: bool) -> Result<Method, String> {
        let answer = match self.take("void") {
            true => None,
            false => Some(self.of()?),
        };
        let name = self.name()?;
        if oneway && answer.is_some() {
            return Err(format!("{name} is oneway and has an answer"));
        }
        self.expect("(")?;
        let mut arguments = Vec::new();
        while !self.take(")") {
            // Without a direction only what is no array and no parcelable; the compiler says so.
            self.take("in");
            let of = self.of()?;
            arguments.push((self.name()?, of));
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(Method {
            name,
            answer,
            arguments,
        })
    }

    fn of(&mut self) -> Result<Type, String> {
        let nullable = self.take("@");
        if nullable {
            self.expect("nullable")?;
        }
        let name = self.name()?;
        if ["out", "inout", "oneway", "const"].contains(&name.as_str()) {
            return Err(format!("`{name}` where a type is understood"));
        }
        let array = self.take("[");
        if array {
            self.expect("]")?;
        }
        Ok(Type {
            name,
            array,
            nullable,
        })
    }
}
