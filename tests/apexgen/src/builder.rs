//! The archive as a whole.

use crate::corrupt::{corrupt, Corruption};
use crate::payload::noise;
use crate::zip::{empty_local, Archive, Descriptor, Entry, Method};
use crate::{Key, Window};
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Size of an AVB key blob for RSA-4096.
const KEY_SIZE: usize = 1032;

enum Payload {
    Bytes(Vec<u8>),
    File(PathBuf),
    Hole(u64),
}

/// Builds one archive. Where nothing else is asked for it is a good APEX.
pub struct ApexBuilder {
    name: String,
    version: u64,
    payload: Payload,
    payload_entry: Entry,
    copies: usize,
    comment: Vec<u8>,
    key: Option<Key>,
    extra_entries: usize,
    files: Vec<(String, Vec<u8>)>,
    small: Method,
    zip64_end: bool,
    nested: bool,
    corruption: Option<Corruption>,
}

impl ApexBuilder {
    /// An APEX called `name`, with a small payload of noise.
    pub fn new(name: &str, version: u64) -> ApexBuilder {
        ApexBuilder {
            name: name.to_owned(),
            version,
            payload: Payload::Bytes(noise(8192, version)),
            payload_entry: Entry {
                name: "apex_payload.img".to_owned(),
                method: Method::Stored,
                alignment: 4096,
                descriptor: None,
                zip64: false,
                central_extra: 0,
            },
            copies: 1,
            comment: Vec::new(),
            key: None,
            extra_entries: 0,
            files: Vec::new(),
            small: Method::Deflated,
            zip64_end: false,
            nested: false,
            corruption: None,
        }
    }

    /// The payload's bytes.
    pub fn payload(mut self, bytes: impl Into<Vec<u8>>) -> ApexBuilder {
        self.payload = Payload::Bytes(bytes.into());
        self
    }

    /// The file to copy the payload from.
    pub fn payload_file(mut self, path: &Path) -> ApexBuilder {
        self.payload = Payload::File(path.to_owned());
        self
    }

    /// The payload: `image` with tree, vbmeta image and footer; the key's blob is `apex_pubkey`.
    pub fn signed(mut self, image: &[u8], signing: &crate::Signing) -> ApexBuilder {
        self.key = Some(signing.key);
        self.payload(signing.payload(image))
    }

    /// The payload: a signed EROFS image with the manifest and `files`, whose names come after it.
    pub fn mountable(self, files: &[(&str, &[u8])], signing: &crate::Signing) -> ApexBuilder {
        let manifest = manifest(&self.name, self.version);
        let mut all: Vec<(&str, &[u8])> = vec![("apex_manifest.pb", &manifest)];
        all.extend(files);
        let image = crate::erofs_image(&all);
        self.signed(&image, signing)
    }

    /// Puts another key's blob into the archive than the payload's.
    pub fn archive_key(mut self, key: Key) -> ApexBuilder {
        self.key = Some(key);
        self
    }

    /// How the payload is stored.
    pub fn method(mut self, method: Method) -> ApexBuilder {
        self.payload_entry.method = method;
        self
    }

    /// The boundary of the payload in bytes; 0 lets it lie where it falls, which is never on a
    /// multiple of 512 in these archives.
    pub fn alignment(mut self, bytes: u64) -> ApexBuilder {
        self.payload_entry.alignment = bytes;
        self
    }

    /// Names the payload's entry: `original_apex` makes a compressed APEX of it.
    pub fn entry_name(mut self, name: &str) -> ApexBuilder {
        self.payload_entry.name = name.to_owned();
        self
    }

    /// Puts sizes and checksum behind each entry instead of into its local header.
    pub fn descriptor(mut self, descriptor: Descriptor) -> ApexBuilder {
        self.payload_entry.descriptor = Some(descriptor);
        self
    }

    /// Gives each entry numbers of 64 bits, although all fit.
    pub fn zip64_entries(mut self) -> ApexBuilder {
        self.payload_entry.zip64 = true;
        self
    }

    /// Writes a zip64 end record, although none is needed.
    pub fn zip64_end(mut self) -> ApexBuilder {
        self.zip64_end = true;
        self
    }

    /// The payload: a hole of so many bytes, for [`ApexBuilder::write`]; its checksum is wrong.
    pub fn hole(mut self, bytes: u64) -> ApexBuilder {
        self.payload = Payload::Hole(bytes);
        self
    }

    /// How manifest and key are stored.
    pub fn small_method(mut self, method: Method) -> ApexBuilder {
        self.small = method;
        self
    }

    /// Adds a stored entry behind the others; a second one of a name where there is one.
    pub fn file(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> ApexBuilder {
        self.files.push((name.to_owned(), bytes.into()));
        self
    }

    /// Puts the local header of an empty entry into the payload's first bytes.
    pub fn nested_entry(mut self) -> ApexBuilder {
        self.nested = true;
        self
    }

    /// Gives the payload's central record an extra field of its own.
    pub fn central_extra(mut self, bytes: u16) -> ApexBuilder {
        self.payload_entry.central_extra = bytes;
        self
    }

    /// Writes the payload entry `copies` times; 0 leaves it out.
    pub fn copies(mut self, copies: usize) -> ApexBuilder {
        self.copies = copies;
        self
    }

    /// The archive comment, at most 65,535 bytes.
    pub fn comment(mut self, bytes: impl Into<Vec<u8>>) -> ApexBuilder {
        self.comment = bytes.into();
        self
    }

    /// Adds empty entries behind the others.
    pub fn extra_entries(mut self, count: usize) -> ApexBuilder {
        self.extra_entries = count;
        self
    }

    /// Breaks the finished archive.
    pub fn corrupt(mut self, corruption: Corruption) -> ApexBuilder {
        self.corruption = Some(corruption);
        self
    }

    /// Writes the archive to `path`. The window is that of the last copy of the payload, before
    /// any corruption; empty where there is none.
    ///
    /// # Errors
    /// What reading the payload's file or writing `path` gave.
    pub fn write(self, path: &Path) -> io::Result<Window> {
        Ok(self.put(File::create(path)?)?.1)
    }

    /// The archive in memory, and the window as in [`ApexBuilder::write`].
    ///
    /// # Errors
    /// What reading the payload's file gave.
    pub fn build(self) -> io::Result<(Vec<u8>, Window)> {
        // Cursor<Vec> and File behave alike for what put does.
        let (out, window) = self.put(Cursor::new(Vec::new()))?;
        Ok((out.into_inner(), window))
    }

    fn put<W: Write + Seek>(self, out: W) -> io::Result<(W, Window)> {
        let mut archive = Archive::new(out);
        let small = |name: &str, method| Entry {
            name: name.to_owned(),
            method,
            alignment: 0,
            central_extra: 0,
            ..self.payload_entry.clone()
        };
        archive.add(
            small("apex_manifest.pb", self.small),
            &mut manifest(&self.name, self.version).as_slice(),
        )?;
        let nested = small("nested", Method::Stored);
        let mut payload = None;
        for _ in 0..self.copies {
            let entry = self.payload_entry.clone();
            payload = Some(match &self.payload {
                Payload::Bytes(bytes) if self.nested => {
                    let header = empty_local(&nested);
                    let mut data = header.as_slice().chain(&bytes[header.len()..]);
                    archive.add(entry, &mut data)?
                }
                Payload::Bytes(bytes) => archive.add(entry, &mut bytes.as_slice())?,
                Payload::File(path) => archive.add(entry, &mut File::open(path)?)?,
                Payload::Hole(bytes) => archive.add_hole(entry, *bytes)?,
            });
        }
        archive.add(
            small("apex_pubkey", self.small),
            &mut match self.key {
                Some(key) => key.blob(),
                None => noise(KEY_SIZE, self.version),
            }
            .as_slice(),
        )?;
        for i in 0..self.extra_entries {
            archive.add(
                small(&format!("assets/{i}"), Method::Stored),
                &mut io::empty(),
            )?;
        }
        for (name, bytes) in &self.files {
            archive.add(small(name, Method::Stored), &mut bytes.as_slice())?;
        }
        if let (true, Some(index)) = (self.nested, payload) {
            archive.claim(nested, archive.placed(index).data.offset);
        }
        let (mut out, placed, directory) = archive.finish(&self.comment, self.zip64_end)?;
        let placed = payload.map(|index| placed[index]);
        if let (Some(corruption), Some(placed)) = (self.corruption, placed) {
            corrupt(
                &mut out,
                corruption,
                placed,
                directory,
                self.comment.len() as u16,
            )?;
        }
        let nothing = Window {
            offset: 0,
            length: 0,
        };
        Ok((out, placed.map_or(nothing, |p| p.data)))
    }
}

/// `message ApexManifest { string name = 1; int64 version = 2; }`, as AOSP's apex_manifest.proto.
fn manifest(name: &str, version: u64) -> Vec<u8> {
    let mut bytes = vec![0x0a];
    varint(&mut bytes, name.len() as u64);
    bytes.extend(name.as_bytes());
    bytes.push(0x10);
    varint(&mut bytes, version);
    bytes
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_is_where_the_window_says() {
        let payload = noise(12288, 5);
        for alignment in [0, 512, 4096] {
            let builder = ApexBuilder::new("a.b", 1).payload(payload.clone());
            let (archive, window) = builder.alignment(alignment).build().unwrap();
            let start = window.offset as usize;
            assert_eq!(archive[start..start + payload.len()], payload);
            assert_eq!(window.length, payload.len() as u64);
            assert_eq!(window.offset % alignment.max(1), 0);
            assert_eq!(window.offset % 512 == 0, alignment != 0);
        }
    }

    #[test]
    fn a_file_and_memory_give_the_same_archive() {
        let folder = std::env::temp_dir().join(format!("apexgen-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let payload = folder.join("payload");
        std::fs::write(&payload, noise(200_000, 9)).unwrap();
        let archive = folder.join("a.apex");
        let on_disk = crate::write_apex(&archive, "a.b", 3, &payload).unwrap();
        let (bytes, window) = ApexBuilder::new("a.b", 3)
            .payload(noise(200_000, 9))
            .build()
            .unwrap();
        let read = std::fs::read(&archive).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(on_disk, window);
        assert!(read == bytes, "the file differs from memory");
    }

    #[test]
    fn each_corruption_changes_something_and_no_length() {
        let (good, _) = ApexBuilder::new("a.b", 1).build().unwrap();
        for corruption in Corruption::ALL {
            let builder = ApexBuilder::new("a.b", 1).corrupt(corruption);
            let (bad, _) = builder.build().unwrap();
            assert_eq!(bad.len(), good.len(), "{corruption:?}");
            assert!(bad != good, "{corruption:?}");
        }
    }
}
