//! The archive that the kernel unpacks as its first root: cpio "newc"
//! (Documentation/driver-api/early-userspace/buffer-format.rst). Written here, so that device
//! nodes and owners need no root.

/// What an entry is.
#[derive(Clone, Debug)]
pub enum Content {
    /// A directory.
    Directory,
    /// A file with these bytes.
    File(Vec<u8>),
    /// A symbolic link to this path.
    Symlink(String),
    /// A character device: major, minor.
    CharacterDevice(u32, u32),
}

/// An archive under construction. All entries belong to root.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const TRAILER: &str = "TRAILER!!!";
/// File type bits of the mode.
const DIRECTORY: u32 = 0o040000;
const REGULAR: u32 = 0o100000;
const SYMLINK: u32 = 0o120000;
const CHARACTER: u32 = 0o020000;

impl Archive {
    /// Adds an entry; `path` is relative to the root. Parents must come first.
    pub fn add(&mut self, path: &str, permissions: u32, content: &Content) {
        let (kind, data, device) = match content {
            Content::Directory => (DIRECTORY, &[][..], (0, 0)),
            Content::File(bytes) => (REGULAR, &bytes[..], (0, 0)),
            Content::Symlink(target) => (SYMLINK, target.as_bytes(), (0, 0)),
            Content::CharacterDevice(major, minor) => (CHARACTER, &[][..], (*major, *minor)),
        };
        self.entry(path, kind | permissions, data, device);
    }

    /// The finished archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[], (0, 0));
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, data: &[u8], device: (u32, u32)) {
        self.entries += 1;
        let size = data.len() as u32;
        let fields = [
            self.entries, // inode
            mode,
            0, // uid
            0, // gid
            1, // links
            0, // time
            size,
            0, // device of the file: major, minor
            0,
            device.0,
            device.1,
            path.len() as u32 + 1,
            0, // checksum, unused
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    /// Names and data end on a multiple of 4.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_documented_layout() {
        let mut archive = Archive::default();
        archive.add("a/bc", 0o644, &Content::File(b"hello".to_vec()));
        let bytes = archive.finish();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[14..22], b"000081a4");
        assert_eq!(&bytes[54..62], b"00000005");
        assert_eq!(&bytes[94..102], b"00000005");
        assert_eq!(&bytes[110..115], b"a/bc\0");
        assert_eq!(&bytes[116..124], b"hello\0\0\0");
        assert_eq!(&bytes[124..130], b"070701");
        assert_eq!(bytes.len() % 4, 0);
    }
}
