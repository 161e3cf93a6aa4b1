//! A small EROFS image (linux fs/erofs/erofs_fs.h): a root folder with files, uncompressed, so that
//! a payload can be mounted that no tool had to make.

const BLOCK: usize = 4096;
/// Superblock, inodes and root folder have a block each.
const FIRST_DATA_BLOCK: usize = 3;
const INODE: usize = 32;

/// An image with these files, names in ascending order. All belong to root, mode 0644.
///
/// # Panics
/// More or longer names than one block holds.
pub fn erofs_image(files: &[(&str, &[u8])]) -> Vec<u8> {
    let folder = folder(files);
    assert!(folder.len() <= BLOCK && (files.len() + 1) * INODE <= BLOCK);
    let mut image = vec![0; FIRST_DATA_BLOCK * BLOCK];
    let mut inodes = inode(0o040_755, 2, folder.len(), 2, 1);
    for (at, (_, data)) in files.iter().enumerate() {
        let block = image.len() / BLOCK;
        inodes.extend(inode(0o100_644, 1, data.len(), block, at + 2));
        image.extend(*data);
        image.resize(image.len().next_multiple_of(BLOCK), 0);
    }
    image[BLOCK..BLOCK + inodes.len()].copy_from_slice(&inodes);
    image[2 * BLOCK..2 * BLOCK + folder.len()].copy_from_slice(&folder);
    let blocks = (image.len() / BLOCK) as u32;
    let mut put =
        |at: usize, bytes: &[u8]| image[1024 + at..][..bytes.len()].copy_from_slice(bytes);
    put(0, &0xe0f5_e1e2u32.to_le_bytes());
    // log2 of the block size; the root's number is 0.
    put(12, &[12]);
    put(16, &(files.len() as u64 + 1).to_le_bytes());
    put(36, &blocks.to_le_bytes());
    // First block of the inodes.
    put(40, &1u32.to_le_bytes());
    image
}

/// A compact inode, its data in whole blocks from `block` on.
fn inode(mode: u16, links: u16, size: usize, block: usize, number: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(INODE);
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(mode.to_le_bytes());
    bytes.extend(links.to_le_bytes());
    bytes.extend((size as u32).to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend((block as u32).to_le_bytes());
    bytes.extend((number as u32).to_le_bytes());
    bytes.resize(INODE, 0);
    bytes
}

/// The root folder: records, then names.
fn folder(files: &[(&str, &[u8])]) -> Vec<u8> {
    const RECORD: usize = 12;
    const REGULAR: u8 = 1;
    const FOLDER: u8 = 2;
    let mut entries = vec![(".", 0, FOLDER), ("..", 0, FOLDER)];
    entries.extend(
        files
            .iter()
            .enumerate()
            .map(|(i, (name, _))| (*name, i + 1, REGULAR)),
    );
    assert!(
        entries.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "names must ascend"
    );
    let mut offset = entries.len() * RECORD;
    let mut bytes = Vec::new();
    for (name, number, kind) in &entries {
        bytes.extend((*number as u64).to_le_bytes());
        bytes.extend((offset as u16).to_le_bytes());
        bytes.extend([*kind, 0]);
        offset += name.len();
    }
    entries
        .iter()
        .for_each(|(name, _, _)| bytes.extend(name.bytes()));
    bytes
}
