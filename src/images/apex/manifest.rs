//! `apex_manifest.pb` (AOSP system/apex/proto/apex_manifest.proto), by a reader of its own: four
//! wire types and a handful of fields.

/// Largest manifest that is read.
pub(in crate::images) const MAX_MANIFEST: u32 = 1 << 20;
/// Longest package name; it becomes a folder's.
const MAX_NAME: usize = 255;

/// What the manifest says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Package name, fit to be a folder's name.
    pub name: String,
    /// Version.
    pub version: u64,
    /// For people.
    pub version_name: String,
    /// Nothing in it is executed: mounted noexec.
    pub no_code: bool,
    /// Native libraries that it offers.
    pub provide_native_libs: Vec<String>,
    /// Native libraries that it needs.
    pub require_native_libs: Vec<String>,
    /// Shared-library APEX files that it needs, `name:hash`.
    pub require_shared_apex_libs: Vec<String>,
    /// It is an APEX of shared libraries.
    pub provide_shared_apex_libs: bool,
}

/// What a field holds.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// Bytes that are taken from the front.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            // The tenth byte has one bit to give.
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let end = self.at.checked_add(usize::try_from(length).ok()?)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return None,
        };
        (key >> 3 != 0).then_some((key >> 3, value))
    }
}

impl Manifest {
    /// Reads a manifest. A failure is the position inside it, and why.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, (usize, &'static str)> {
        let mut reader = Reader { bytes, at: 0 };
        let mut manifest = Manifest::default();
        while reader.at < bytes.len() {
            let at = reader.at;
            let field = reader.field().ok_or((at, "a field that is no protobuf"))?;
            manifest.set(field).map_err(|why| (at, why))?;
        }
        if !is_name(&manifest.name) {
            return Err((0, "no name, or one that is no folder's name"));
        }
        if manifest.version == 0 || manifest.version > i64::MAX as u64 {
            return Err((0, "no version, or a negative one"));
        }
        Ok(manifest)
    }

    fn set(&mut self, (field, value): (u64, Value<'_>)) -> Result<(), &'static str> {
        const KIND: &str = "a known field of another kind";
        let text = |value: Value<'_>| match value {
            Value::Bytes(bytes) => std::str::from_utf8(bytes)
                .map(str::to_owned)
                .map_err(|_| "a text that is not UTF-8"),
            _ => Err(KIND),
        };
        let number = |value: Value<'_>| match value {
            Value::Number(number) => Ok(number),
            _ => Err(KIND),
        };
        match field {
            1 => self.name = text(value)?,
            2 => self.version = number(value)?,
            5 => self.version_name = text(value)?,
            6 => self.no_code = number(value)? != 0,
            7 => self.provide_native_libs.push(text(value)?),
            8 => self.require_native_libs.push(text(value)?),
            10 => self.require_shared_apex_libs.push(text(value)?),
            11 => self.provide_shared_apex_libs = number(value)? != 0,
            _ => {}
        }
        Ok(())
    }
}

/// Package names of Android: letters, digits, `.`, `_`, `-`; nothing that leads out of a folder.
fn is_name(name: &str) -> bool {
    let fit = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(fit) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_unknown_ones_stepped_over() {
        let mut bytes = b"\x0a\x03a.b\x10\xac\x02\x2a\x01x\x30\x01\x3a\x02p1\x3a\x02p2".to_vec();
        bytes.extend(b"\x52\x01s\x58\x01\x9a\x06\x02zz\x65\0\0\0\0");
        let manifest = Manifest::parse(&bytes).unwrap();
        let want = Manifest {
            name: "a.b".to_owned(),
            version: 300,
            version_name: "x".to_owned(),
            no_code: true,
            provide_native_libs: vec!["p1".to_owned(), "p2".to_owned()],
            require_native_libs: Vec::new(),
            require_shared_apex_libs: vec!["s".to_owned()],
            provide_shared_apex_libs: true,
        };
        assert_eq!(manifest, want);
    }

    #[test]
    fn what_is_no_manifest_is_refused() {
        let table: [(&[u8], usize); 9] = [
            (b"", 0),
            (b"\x0a\x05a.b\x10\x01", 0),
            (b"\x0a\x03a.b", 0),
            (b"\x0a\x03a/b\x10\x01", 0),
            (b"\x0a\x02..\x10\x01", 0),
            (b"\x0a\x03a.b\x10\x80", 5),
            (b"\x0a\x03a.b\x12\x01x", 5),
            (
                b"\x0a\x03a.b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
                5,
            ),
            (b"\x0a\x02\xff\xfe\x10\x01", 0),
        ];
        for (bytes, at) in table {
            assert_eq!(Manifest::parse(bytes).unwrap_err().0, at, "{bytes:02x?}");
        }
    }
}
