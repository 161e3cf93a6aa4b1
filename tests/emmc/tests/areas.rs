//! Write-protect groups, boot partitions, a cache that writes back when it likes.
mod common;
use common::{switch_arg, us, Host, What};
use emmc::card::{argument, bits, Area, Config, Fields};

const GROUP: u64 = 1024;
const USER: (usize, u8) = (179, 0);
const BOOT1: (usize, u8) = (179, 1);
const BOOT2: (usize, u8) = (179, 2);

fn select(host: &mut Host, (index, value): (usize, u8)) -> u32 {
    host.switch(index, value)
}

#[test]
fn protected_groups_are_spared_and_said() {
    let mut host = Host::with_pattern(Fields::default());
    host.ok(28, 2000); // group 1
    host.wait();
    // A write there: refused.
    host.ok(23, 1);
    let status = host.r1(25, 1024);
    assert_ne!(status & bits::WP_VIOLATION, 0, "{status:#x}");
    assert_eq!(host.what(1024), What::Pattern);
    // An erase over it: the others go, and it says so behind.
    let (own, after) = host.erase(0, 3 * GROUP - 1, argument::SECURE_ERASE);
    assert_eq!((own, after), (0, bits::WP_ERASE_SKIP));
    assert_eq!(host.what(0), What::Byte(0));
    assert_eq!(host.what(1024), What::Pattern);
    assert_eq!(host.what(2047), What::Pattern);
    assert_eq!(host.what(2048), What::Byte(0));
    // CMD30 tells of it, the addressed group lowest.
    host.ok(30, 0);
    let mut word = [0; 4];
    host.card.read_data(&mut word).expect("32 bits");
    assert_eq!(u32::from_be_bytes(word), 0b10);
    // Cleared, it goes as well.
    host.ok(29, 1024);
    host.wait();
    assert_eq!(host.erase(1024, 2047, argument::ERASE), (0, 0));
    assert_eq!(host.what(1500), What::Byte(0));
}

#[test]
fn protection_survives_a_power_cycle() {
    let mut host = Host::with_pattern(Fields::default());
    host.ok(28, 0);
    host.wait();
    host.card.power_cut(host.now);
    host.card.power_on();
    host.identify();
    host.switch(175, 1);
    let (_, after) = host.erase(0, GROUP - 1, argument::ERASE);
    assert_eq!(after, bits::WP_ERASE_SKIP);
    assert_eq!(host.what(0), What::Pattern);
}

#[test]
fn boot_partitions_are_media_of_their_own() {
    let fields = Fields {
        boot_size_mult: 1,
        ..Fields::default()
    };
    let mut host = Host::with_pattern(fields);
    assert_eq!(select(&mut host, BOOT1), 0);
    assert_eq!(host.card.area(), Area::Boot1);
    host.write_only(0, 8, 0xb1, false);
    host.wait();
    assert_eq!(select(&mut host, BOOT2), 0);
    host.write_only(0, 8, 0xb2, false);
    host.wait();
    // They have 128 KiB.
    assert_ne!(host.r1(17, 256) & bits::OUT_OF_RANGE, 0);
    assert_eq!(select(&mut host, USER), 0);
    assert_eq!(host.what(0), What::Pattern);
    host.erase(0, GROUP - 1, argument::SECURE_ERASE);
    assert_eq!(host.what(0), What::Byte(0));
    for (area, byte) in [(BOOT1, 0xb1), (BOOT2, 0xb2)] {
        assert_eq!(select(&mut host, area), 0);
        assert_eq!(host.what(7), What::Byte(byte));
    }
    // A power cycle selects the user area.
    host.card.power_cut(host.now);
    host.card.power_on();
    assert_eq!(host.card.area(), Area::User);
}

#[test]
fn areas_that_are_not_there_cannot_be_selected() {
    let mut host = Host::with_pattern(Fields::default());
    for access in [1, 2, 3, 4, 7] {
        host.ok(6, switch_arg(179, access));
        host.wait();
        assert_eq!(host.errors(), bits::SWITCH_ERROR, "{access}");
        assert_eq!(host.card.area(), Area::User);
    }
}

/// Which lines are lost by a cut differs by seed, and is the same for one seed.
#[test]
fn a_cache_with_a_seed_writes_back_in_any_order() {
    let survivors = |seed: Option<u64>| {
        let config = Config {
            eviction_seed: seed,
            ..Fields::default().into()
        };
        let mut host = Host::new(config);
        for n in 0..64 {
            host.write_only(n * 8, 8, 0xcc, false);
            host.wait();
        }
        host.card.power_cut(host.now + us(1));
        host.card.power_on();
        host.identify();
        (0..64)
            .filter(|n| host.what(n * 8) == What::Byte(0xcc))
            .collect::<Vec<u64>>()
    };
    assert_eq!(
        survivors(None),
        [] as [u64; 0],
        "the cache has room for all"
    );
    let (one, two) = (survivors(Some(1)), survivors(Some(2)));
    assert_ne!(one, two);
    assert_eq!(one, survivors(Some(1)));
    for lines in [one, two] {
        assert!((8..64).contains(&lines.len()), "{lines:?}");
        let sorted = lines.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        assert!(!sorted, "not the first ones in a row: {lines:?}");
    }
}
