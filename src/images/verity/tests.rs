use super::*;
use apexgen::{noise, Key, Signing};

fn descriptor(image: u64, tree_size: u64, root: Vec<u8>) -> HashtreeDescriptor {
    HashtreeDescriptor {
        dm_verity_version: 1,
        image_size: image,
        tree_offset: image,
        tree_size,
        data_block_size: 4096,
        hash_block_size: 4096,
        fec_num_roots: 0,
        fec_offset: 0,
        fec_size: 0,
        hash_algorithm: "sha256".to_owned(),
        partition_name: String::new(),
        salt: vec![0x5a; 32],
        root_digest: root,
        flags: 0,
    }
}

fn number(major: u32, minor: u32) -> DeviceNumber {
    DeviceNumber { major, minor }
}

/// The line of kernel's documentation, with device numbers, for trees that lie here and there.
#[test]
fn tables_are_the_kernel_s() {
    let root = vec![0xab; 32];
    let (ab, salt) = ("ab".repeat(32), "5a".repeat(32));
    let stored = descriptor(513 * 4096, 24576, root.clone());
    let line = |tree: &HashtreeDescriptor, hash| {
        table(tree, TreePlace::of(tree), number(7, 3), hash).to_string()
    };
    assert_eq!(
        line(&stored, number(7, 3)),
        format!(
            "0 4104 verity 1 7:3 7:3 4096 4096 513 513 sha256 {ab} {salt} 1 ignore_zero_blocks"
        )
    );
    let built = descriptor(513 * 4096, 0, root.clone());
    assert_eq!(TreePlace::of(&built), TreePlace::Built);
    assert_eq!(
        line(&built, number(7, 1048575)),
        format!(
            "0 4104 verity 1 7:3 7:1048575 4096 4096 513 0 sha256 {ab} {salt} 1 ignore_zero_blocks"
        )
    );
    let mut other = descriptor(8192, 1024, root);
    other.data_block_size = 512;
    other.hash_block_size = 1024;
    other.salt = Vec::new();
    assert_eq!(
        line(&other, number(253, 0)),
        format!("0 16 verity 1 7:3 253:0 512 1024 16 8 sha256 {ab} - 1 ignore_zero_blocks")
    );
}

/// apexgen has a tree builder of its own; sizes are such that 1, 2 and 3 levels come up, with full
/// and ragged ends.
#[test]
fn trees_are_those_of_another_builder() {
    for blocks in [1usize, 2, 127, 128, 129, 300, 128 * 128 + 1] {
        let image = noise(blocks * 4096, blocks as u64);
        let (want, root) = Signing::by(Key::Rsa2048).hash_tree(&image);
        let tree = descriptor(image.len() as u64, 0, root);
        let mut file = vec![0xee; 512];
        file.extend(&image);
        let payload = Window {
            offset: Bytes(512),
            length: Bytes(image.len() as u64),
        };
        let built = build(&file[..], payload, &tree).unwrap();
        assert!(built == want, "{blocks} blocks");
        assert_eq!(built.len() as u64, tree.full_tree_size());
    }
}

#[test]
fn one_block_has_no_tree() {
    let tree = descriptor(4096, 0, vec![0; 32]);
    assert_eq!(TreePlace::of(&tree), TreePlace::Stored(0));
}

#[test]
fn what_does_not_match_is_refused() {
    let image = noise(300 * 4096, 1);
    let (_, root) = Signing::by(Key::Rsa2048).hash_tree(&image);
    let tree = descriptor(image.len() as u64, 0, root);
    let payload = Window {
        offset: Bytes(0),
        length: Bytes(image.len() as u64),
    };
    for at in [0, 4095, 200 * 4096, image.len() - 1] {
        let mut flipped = image.clone();
        flipped[at] ^= 1;
        let failure = build(&flipped[..], payload, &tree).unwrap_err();
        assert_eq!(failure.code, Code::BadSignature);
    }
    let short = &image[..image.len() - 1];
    assert_eq!(
        build(short, payload, &tree).unwrap_err().code,
        Code::DeviceFailed
    );
    let mut other = tree;
    other.hash_algorithm = "blake2b-256".to_owned();
    let failure = build(&image[..], payload, &other).unwrap_err();
    assert_eq!(failure.code, Code::Unsupported);
}
