//! Erase rules of the card.
mod common;
use common::{borders, us, Host, What, RCA};
use emmc::card::{argument, bits, Config, Csd, Fields, State, Timing};

const GROUP: u64 = 1024;
const PATTERN: What = What::Pattern;
const ZERO: What = What::Byte(0);

/// 8 GiB, sector addressed.
fn fields() -> Fields {
    Fields::default()
}

#[test]
fn erase_is_one_busy_phase_and_rounds_to_groups() {
    let timing = Timing {
        erase_us: 5000,
        erase_group_us: 30,
        ..Timing::zero()
    };
    let mut h = Host::with_pattern(Config {
        timing,
        ..fields().into()
    });
    h.now = us(2);
    h.ok(35, 1030);
    h.ok(36, 1030);
    h.ok(38, argument::SECURE_ERASE);
    h.now = us(3);
    let status = h.r1(13, RCA);
    assert_eq!(status >> bits::STATE_SHIFT & 15, State::Prg as u32);
    assert_eq!(status & bits::READY_FOR_DATA, 0);
    assert_eq!(h.card.busy_until(), Some(us(2 + 5030)));
    h.now = us(6000);
    let p = PATTERN;
    assert_eq!(borders(&mut h), [p, p, ZERO, ZERO, p, p, p]);
    assert_eq!(h.card.log.busy_of(38), us(5030));
    assert_eq!(h.card.log.busy(), us(5030));
}

/// (first, last, argument) → what the seven border sectors hold.
#[test]
fn range_table() {
    let (p, z) = (PATTERN, ZERO);
    let table = [
        // whole groups
        (1024, 2047, argument::ERASE, [p, p, z, z, p, p, p]),
        (1024, 3071, argument::SECURE_ERASE, [p, p, z, z, z, z, p]),
        // ragged ends widen to their group
        (1023, 1024, argument::ERASE, [z, z, z, z, p, p, p]),
        (1500, 2048, argument::SECURE_ERASE, [p, p, z, z, z, z, p]),
        (2047, 2047, argument::SECURE_ERASE, [p, p, z, z, p, p, p]),
        // trim is exact
        (1023, 2047, argument::TRIM, [p, z, z, z, p, p, p]),
        (2048, 2048, argument::TRIM, [p, p, p, p, z, p, p]),
        // discard keeps everything readable
        (0, 4095, argument::DISCARD, [p; 7]),
        // step 1 only marks, step 2 without marks does nothing
        (0, 4095, argument::SECURE_TRIM_1, [p; 7]),
        (0, 4095, argument::SECURE_TRIM_2, [p; 7]),
    ];
    for (first, last, argument, want) in table {
        let mut h = Host::with_pattern(fields());
        assert_eq!(h.erase(first, last, argument), (0, 0));
        assert_eq!(
            borders(&mut h),
            want,
            "{first}..={last} argument {argument:#x}"
        );
    }
}

#[test]
fn byte_addressed_cards_take_byte_addresses() {
    let small = Fields {
        sectors: 1 << 21,
        ..fields()
    };
    let mut h = Host::with_pattern(small);
    assert!(!h.card.sector_addressed());
    // "sectors" 2048..=4095 as a careless host sends them: bytes, all within group 0
    h.ok(35, 2048);
    h.ok(36, 4095);
    h.ok(38, argument::SECURE_ERASE);
    assert_eq!(
        [0, 1023, 1024].map(|s| h.what(s)),
        [ZERO, ZERO, PATTERN],
        "one group only"
    );
    // low bits are dropped: any byte of the group names it
    h.ok(35, 1024 * 512 + 1);
    h.ok(36, 2047 * 512 + 511);
    h.ok(38, argument::SECURE_ERASE);
    assert_eq!([1024, 2047, 2048].map(|s| h.what(s)), [ZERO, ZERO, PATTERN]);
    // capacity in bytes
    assert_eq!(h.r1(35, (1 << 21) * 512) & bits::ERRORS, bits::OUT_OF_RANGE);
}

/// (erase group sectors with ERASE_GROUP_DEF 0, with 1)
#[test]
fn erase_group_def_chooses_the_group() {
    let csd = Csd {
        erase_grp_size: 15,
        erase_grp_mult: 7,
        ..Csd::default()
    };
    let eight = Fields {
        hc_erase_grp_size: 8,
        ..fields()
    };
    let mut h = Host::with_pattern(Config {
        csd,
        ..eight.into()
    });
    assert_eq!(h.card.erase_group_sectors(), 8 * 1024);
    assert_eq!(h.switch(175, 0), 0);
    assert_eq!(h.card.erase_group_sectors(), 16 * 8);
    h.erase(130, 130, argument::ERASE);
    let got = [127, 128, 255, 256].map(|s| h.what(s));
    assert_eq!(got, [PATTERN, ZERO, ZERO, PATTERN]);
    assert_eq!(h.switch(175, 1), 0);
    h.erase(8192, 8192, argument::ERASE);
    let got = [8191, 8192, 16383, 16384].map(|s| h.what(s));
    assert_eq!(got, [PATTERN, ZERO, ZERO, PATTERN]);
}

#[test]
fn last_group_may_be_short() {
    let odd = Fields {
        sectors: 4_194_304 + 1024 + 100,
        ..fields()
    };
    let mut h = Host::with_pattern(odd);
    let last = h.card.sectors() - 1;
    assert_eq!(h.erase(last, last, argument::ERASE), (0, 0));
    let got = [last - 100, last - 99, last].map(|s| h.what(s));
    assert_eq!(got, [PATTERN, ZERO, ZERO]);
}

#[test]
fn sequence_errors() {
    let mut h = Host::with_pattern(fields());
    let end = h.card.sectors() as u32;
    // 38 or 36 without their predecessors
    assert_eq!(h.r1(38, 0) & bits::ERRORS, bits::ERASE_SEQ_ERROR);
    assert_eq!(h.r1(36, 0) & bits::ERRORS, bits::ERASE_SEQ_ERROR);
    // 38 without 36
    h.ok(35, 0);
    assert_eq!(h.r1(38, 0) & bits::ERRORS, bits::ERASE_SEQ_ERROR);
    // 36 twice clears the sequence
    h.ok(35, 0);
    h.ok(36, 0);
    assert_eq!(h.r1(36, 0) & bits::ERRORS, bits::ERASE_SEQ_ERROR);
    assert_eq!(h.r1(38, 0) & bits::ERRORS, bits::ERASE_SEQ_ERROR);
    // reversed: not in CMD36's own response (type X), nothing to erase
    h.ok(35, 4096);
    h.ok(36, 0);
    assert_eq!(h.errors(), bits::ERASE_PARAM);
    assert_eq!(h.r1(38, 0) & bits::ERRORS, bits::ERASE_SEQ_ERROR);
    // out of range at either end resets
    assert_eq!(h.r1(35, end) & bits::ERRORS, bits::OUT_OF_RANGE);
    assert_eq!(h.r1(36, 0) & bits::ERRORS, bits::ERASE_SEQ_ERROR);
    h.ok(35, 0);
    assert_eq!(h.r1(36, end) & bits::ERRORS, bits::OUT_OF_RANGE);
    assert_eq!(h.r1(38, 0) & bits::ERRORS, bits::ERASE_SEQ_ERROR);
    // an argument the card does not have
    h.ok(35, 0);
    h.ok(36, 1023);
    h.ok(38, 0x1234_5678);
    assert_eq!(h.errors(), bits::ERASE_PARAM);
    assert_eq!(h.what(0), PATTERN);
    assert_eq!(h.errors(), 0);
}

#[test]
fn any_command_but_status_breaks_a_sequence() {
    for (command, argument) in [(16, 512), (23, 1), (8, 0), (6, 0x0322_0101), (12, 0)] {
        let mut h = Host::with_pattern(fields());
        h.ok(35, 0);
        h.ok(36, 1023);
        let status = h.r1(command, argument);
        assert_eq!(
            status & bits::ERRORS,
            bits::ERASE_RESET,
            "CMD{command} after 36"
        );
        if command == 8 {
            h.card.read_data(&mut [0; 512]).expect("EXT_CSD");
        }
        assert_eq!(h.r1(38, 0) & bits::ERRORS, bits::ERASE_SEQ_ERROR);
        assert_eq!(h.what(0), PATTERN);
    }
    let mut h = Host::with_pattern(fields());
    h.ok(35, 0);
    h.ok(13, RCA);
    h.ok(36, 1023);
    h.ok(13, RCA);
    h.ok(38, 0);
    assert_eq!(h.what(0), ZERO);
}

/// SEC_FEATURE_SUPPORT and EXT_CSD_REV → the arguments that are refused.
#[test]
fn arguments_need_their_feature_bits() {
    use argument::*;
    let all = [
        ERASE,
        SECURE_ERASE,
        TRIM,
        DISCARD,
        SECURE_TRIM_1,
        SECURE_TRIM_2,
    ];
    let table: [(u8, u8, &[u32]); 5] = [
        (0x55, 8, &[]),
        (0x10, 8, &[SECURE_ERASE, SECURE_TRIM_1, SECURE_TRIM_2]),
        (0x01, 8, &[TRIM, SECURE_TRIM_1, SECURE_TRIM_2]),
        (0x11, 5, &[DISCARD]),
        (
            0x00,
            5,
            &[SECURE_ERASE, TRIM, DISCARD, SECURE_TRIM_1, SECURE_TRIM_2],
        ),
    ];
    for (sec_feature_support, rev, refused) in table {
        let mut h = Host::new(Fields {
            sec_feature_support,
            rev,
            ..fields()
        });
        for argument in all {
            let want = if refused.contains(&argument) {
                bits::ERASE_PARAM
            } else {
                0
            };
            let (own, after) = h.erase(0, 1023, argument);
            assert_eq!(
                (own, after),
                (0, want),
                "features {sec_feature_support:#x} rev {rev} argument {argument:#x}"
            );
            let executed = u64::from(want == 0);
            assert_eq!(h.card.log.erases(argument).commands, executed);
        }
    }
}

#[test]
fn secure_trim_erases_what_was_marked() {
    let mut h = Host::with_pattern(fields());
    h.erase(10, 19, argument::SECURE_TRIM_1);
    h.erase(30, 39, argument::SECURE_TRIM_1);
    assert_eq!(h.card.marked().sectors(), 20);
    // a write unmarks
    h.write(35, 1, 7, true);
    h.erase(5000, 5000, argument::SECURE_TRIM_2);
    let got = [9, 10, 19, 20, 29, 30, 34, 35, 36, 39, 40, 5000].map(|s| h.what(s));
    let (p, z) = (PATTERN, ZERO);
    assert_eq!(got, [p, z, z, p, p, z, z, What::Byte(7), z, z, p, p]);
    assert_eq!(h.card.marked().sectors(), 0);
}

#[test]
fn erased_value_is_one_of_two() {
    for (erased_mem_cont, byte) in [(0, 0x00), (1, 0xff)] {
        let mut h = Host::with_pattern(Fields {
            erased_mem_cont,
            ..fields()
        });
        h.erase(0, 0, argument::SECURE_ERASE);
        assert_eq!(h.what(1023), What::Byte(byte));
        assert_eq!(h.what(1024), PATTERN);
    }
}

#[test]
fn an_erase_also_covers_what_the_cache_holds() {
    let mut h = Host::with_pattern(fields());
    h.write(1024, 1, 9, false);
    assert_eq!(h.card.dirty_sectors(0..4096), 1);
    h.erase(1024, 1024, argument::ERASE);
    assert_eq!(h.card.dirty_sectors(0..4096), 0);
    assert_eq!(h.what(1024), ZERO);
}

#[test]
fn sanitize_needs_its_bit_and_erases_what_is_unmapped() {
    let timing = Timing {
        sanitize_us: 700,
        ..Timing::zero()
    };
    let with = |sec_feature_support| Config {
        timing,
        ..Fields {
            sec_feature_support,
            ..fields()
        }
        .into()
    };
    let mut h = Host::with_pattern(with(0x15));
    assert_eq!(h.switch(165, 1), bits::SWITCH_ERROR);
    assert_eq!(h.card.log.busy_of(6), us(0));

    let mut h = Host::with_pattern(with(0x55));
    h.erase(0, 9, argument::DISCARD);
    h.erase(20, 29, argument::SECURE_TRIM_1);
    h.write(5, 1, 3, true);
    assert_eq!(h.switch(165, 1), 0);
    assert_eq!(h.card.log.busy_of(6), us(700));
    let got = [0, 4, 5, 6, 9, 10, 19, 20, 29, 30].map(|s| h.what(s));
    let (p, z) = (PATTERN, ZERO);
    assert_eq!(got, [z, z, What::Byte(3), z, z, p, p, z, z, p]);
}

#[test]
fn seed_card_fits_its_table() {
    let fields = Fields {
        sectors: 48 << 20,
        ..fields()
    };
    let seconds = |commands: u64| {
        let mut h = Host::new(Config {
            timing: Timing::seed_card(),
            ..fields.into()
        });
        let groups = 45056 / commands;
        for i in 0..commands {
            let first = i * groups * GROUP;
            let last = first + groups * GROUP - 1;
            assert_eq!(h.erase(first, last, argument::SECURE_ERASE), (0, 0));
        }
        assert_eq!(
            h.card.log.erases(argument::SECURE_ERASE).sectors,
            45056 * GROUP
        );
        assert_eq!(h.card.log.count(38), commands);
        h.card.log.busy().as_millis()
    };
    assert_eq!(seconds(1), 1423);
    assert_eq!(seconds(45056), 1_195_380);
}
