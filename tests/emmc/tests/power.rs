//! Cache, flush, reliable write and power loss.
mod common;
use common::{switch_arg, us, Host, What};
use emmc::card::{argument, bits, Config, Fields, Lies, Response, Timing};

const ZERO: What = What::Byte(0);

fn after_cut(h: &mut Host) {
    h.card.power_cut(h.now);
    assert_eq!(h.cmd(13, 1 << 16), Response::None);
    assert!(!h.card.powered());
    h.card.power_on();
    h.identify();
}

#[test]
fn power_cut_loses_cache_keeps_reliable_tears_erase() {
    let timing = Timing {
        erase_group_us: 100,
        ..Timing::zero()
    };
    let mut h = Host::new(Config {
        timing,
        ..Fields::default().into()
    });
    h.write(0, 8, 1, true);
    h.write(8, 8, 2, false);
    h.switch(32, 1);
    h.write(16, 8, 3, false);
    assert_eq!(h.what(16), What::Byte(3));
    for group in 0..4 {
        h.write(8192 + group * 1024, 1, 9, true);
    }
    h.now = us(2);
    h.ok(35, 8192);
    h.ok(36, 8192 + 4095);
    h.ok(38, argument::SECURE_ERASE);
    h.now = us(2 + 250);
    after_cut(&mut h);
    let got = [0, 8, 16].map(|s| h.what(s));
    assert_eq!(got, [What::Byte(1), What::Byte(2), ZERO]);
    let got = [0, 1, 2, 3].map(|g| h.what(8192 + g * 1024));
    assert_eq!(got, [ZERO, ZERO, What::Byte(9), What::Byte(9)]);
    assert_eq!(h.card.log.counters.lost_lines, 1);
    assert_eq!(h.card.log.counters.power_cuts, 1);
    // volatile registers are back at their defaults
    assert!(!h.card.cache_on());
}

/// Which sectors of a torn operation are new: (elapsed µs of 800, erased or written count).
#[test]
fn writes_and_trims_tear_at_a_sector() {
    for (elapsed, done) in [(0, 0), (99, 0), (100, 1), (399, 3), (799, 7), (800, 8)] {
        let timing = Timing {
            write_us: 800,
            erase_us: 800,
            ..Timing::zero()
        };
        let fields = Fields {
            cache_size_kibit: 0,
            ..Fields::default()
        };
        for trim in [false, true] {
            let mut h = Host::with_pattern(Config {
                timing,
                ..fields.into()
            });
            if trim {
                h.ok(35, 100);
                h.ok(36, 107);
                h.ok(38, argument::TRIM);
            } else {
                h.write_only(100, 8, 0, false);
            }
            h.now += us(elapsed);
            after_cut(&mut h);
            let new = (100..108).take_while(|s| h.what(*s) == ZERO).count();
            let old = (100..108).filter(|s| h.what(*s) == What::Pattern).count();
            assert_eq!((new, old), (done, 8 - done), "trim {trim} after {elapsed}");
        }
    }
}

#[test]
fn a_torn_flush_writes_some_lines() {
    let timing = Timing {
        flush_line_us: 100,
        ..Timing::zero()
    };
    let mut h = Host::new(Config {
        timing,
        ..Fields::default().into()
    });
    for line in 0..4 {
        h.write(line * 8, 8, 5, false);
    }
    h.ok(6, switch_arg(32, 1));
    h.now += us(250);
    after_cut(&mut h);
    let got = [0, 8, 16, 24].map(|s| h.what(s));
    assert_eq!(got, [What::Byte(5), What::Byte(5), ZERO, ZERO]);
    let c = &h.card.log.counters;
    assert_eq!((c.flushes, c.flushed_lines, c.lost_lines), (1, 2, 2));
}

/// WR_REL_PARAM, REL_WR_SEC_C, sector, count → reliable?
#[test]
fn reliable_write_shapes() {
    let table = [
        (0x14, 1, 3, 5, true),
        (0x10, 1, 3, 1, true),
        (0x10, 1, 3, 2, false),
        (0x10, 8, 8, 8, true),
        (0x10, 8, 9, 8, false),
        (0x10, 8, 9, 1, true),
        (0x10, 8, 8, 7, false),
        (0x10, 0, 8, 1, false),
    ];
    for (wr_rel_param, rel_wr_sec_c, sector, count, reliable) in table {
        let mut h = Host::new(Fields {
            wr_rel_param,
            rel_wr_sec_c,
            ..Fields::default()
        });
        h.write(sector, count, 6, true);
        let c = &h.card.log.counters;
        let want = (u64::from(reliable), u64::from(!reliable));
        let what = format!("{wr_rel_param:#x} {rel_wr_sec_c} {sector}+{count}");
        assert_eq!((c.reliable_writes, c.unreliable_writes), want, "{what}");
        after_cut(&mut h);
        let want = if reliable { What::Byte(6) } else { ZERO };
        assert_eq!(h.what(sector), want, "{what}");
    }
}

#[test]
fn cache_control_and_eviction() {
    // 32 KiB = 8 lines
    let fields = Fields {
        cache_size_kibit: 256,
        ..Fields::default()
    };
    let mut h = Host::new(fields);
    for line in 0..10 {
        h.write(line * 8, 8, 4, false);
    }
    assert_eq!(h.card.dirty_lines(), 8);
    assert_eq!(h.card.log.counters.evicted_lines, 2);
    // off: what it holds is written back, later writes go through
    assert_eq!(h.switch(33, 0), 0);
    assert_eq!(h.card.dirty_lines(), 0);
    h.write(800, 1, 4, false);
    assert_eq!(h.card.dirty_lines(), 0);
    after_cut(&mut h);
    for sector in [0, 8, 72, 800] {
        assert_eq!(h.what(sector), What::Byte(4));
    }
    // a card without cache ignores CACHE_CTRL
    let mut h = Host::new(Fields {
        cache_size_kibit: 0,
        ..fields
    });
    assert!(!h.card.cache_on());
    h.write(0, 1, 4, false);
    after_cut(&mut h);
    assert_eq!(h.what(0), What::Byte(4));
}

#[test]
fn cmd0_writes_back_and_resets() {
    let mut h = Host::new(Fields::default());
    h.write(0, 1, 4, false);
    h.identify();
    assert!(!h.card.cache_on());
    assert_eq!(h.what(0), What::Byte(4));
}

#[test]
fn lying_cards_lose_what_they_acknowledged() {
    let table = [
        (Lies::default(), [What::Byte(1), What::Byte(2)]),
        (
            Lies {
                ignore_flush: true,
                ..Lies::default()
            },
            [ZERO, What::Byte(2)],
        ),
        (
            Lies {
                ignore_reliable: true,
                ..Lies::default()
            },
            [What::Byte(1), ZERO],
        ),
    ];
    for (lies, want) in table {
        let mut h = Host::new(Config {
            lies: lies.clone(),
            ..Fields::default().into()
        });
        h.write(0, 1, 1, false);
        assert_eq!(h.switch(32, 1), 0);
        h.write(8, 1, 2, true);
        after_cut(&mut h);
        assert_eq!([0, 8].map(|s| h.what(s)), want, "{lies:?}");
    }
}

#[test]
fn switch_refuses_what_the_card_does_not_have() {
    let mut h = Host::new(Fields::default());
    for (index, value) in [
        (192, 1),
        (179, 1),
        (185, 2),
        (183, 6),
        (15, 1),
        (171, 1),
        (222, 1),
    ] {
        assert_eq!(h.switch(index, value), bits::SWITCH_ERROR, "{index}");
    }
    for (index, value) in [(185, 1), (183, 2), (34, 1), (179, 0x48), (175, 1)] {
        assert_eq!(h.switch(index, value), 0, "{index}");
        assert_eq!(h.card.ext_csd().0[index], value);
    }
    // set and clear bits
    h.ok(6, 2 << 24 | 179 << 16 | 0x40 << 8);
    assert_eq!(h.card.ext_csd().0[179], 0x08);
    h.ok(6, 1 << 24 | 179 << 16 | 0x10 << 8);
    assert_eq!(h.card.ext_csd().0[179], 0x18);
}

#[test]
fn data_transfers_check_their_addresses() {
    let mut h = Host::new(Fields {
        sectors: 1 << 20,
        ..Fields::default()
    });
    assert_eq!(h.r1(17, 511) & bits::ERRORS, bits::ADDRESS_MISALIGN);
    assert_eq!(h.r1(25, 1 << 29) & bits::ERRORS, bits::OUT_OF_RANGE);
    h.ok(23, 2);
    let last = h.at((1 << 20) - 1);
    assert_eq!(h.r1(18, last) & bits::ERRORS, bits::OUT_OF_RANGE);
    // open-ended write in two parts, then stop
    h.ok(25, 512 * 50);
    h.card.write_data(h.now, &[1; 512]).expect("first");
    h.card.write_data(h.now, &[2; 1024]).expect("second");
    h.ok(12, 0);
    let got = [49, 50, 51, 52, 53].map(|s| h.what(s));
    let byte = What::Byte;
    assert_eq!(got, [ZERO, byte(1), byte(2), byte(2), ZERO]);
    // more than was announced
    h.ok(23, 1);
    h.ok(25, 0);
    assert!(h.card.write_data(h.now, &[1; 1024]).is_err());
}

#[test]
fn a_busy_card_only_takes_status_stop_and_selection() {
    let timing = Timing {
        erase_us: 1000,
        ..Timing::zero()
    };
    let mut h = Host::new(Config {
        timing,
        ..Fields::default().into()
    });
    h.ok(35, 0);
    h.ok(36, 0);
    h.ok(38, 0);
    assert_eq!(h.cmd(17, 0), Response::None);
    assert_eq!(h.card.log.counters.illegal, 1);
    assert_eq!(h.errors(), bits::ILLEGAL_COMMAND);
    h.wait();
    h.ok(17, 0);
}

#[test]
fn a_reliable_write_replaces_what_the_cache_holds() {
    let mut h = Host::new(Fields::default());
    h.write(8, 2, 1, false);
    h.write(8, 1, 2, true);
    assert_eq!([8, 9].map(|s| h.what(s)), [What::Byte(2), What::Byte(1)]);
    assert_eq!(h.card.dirty_sectors(0..100), 1);
    h.switch(32, 1);
    after_cut(&mut h);
    assert_eq!([8, 9].map(|s| h.what(s)), [What::Byte(2), What::Byte(1)]);
}

#[test]
fn a_power_cut_forgets_secure_trim_marks() {
    let mut h = Host::with_pattern(Fields::default());
    h.erase(10, 19, argument::SECURE_TRIM_1);
    after_cut(&mut h);
    assert_eq!(h.erase(10, 19, argument::SECURE_TRIM_2), (0, 0));
    assert_eq!(h.what(10), What::Pattern);
}

#[test]
fn a_reset_log_does_not_book_old_time_on_new_entries() {
    let timing = Timing {
        reliable_us: 300,
        ..Timing::zero()
    };
    let mut h = Host::new(Config {
        timing,
        ..Fields::default().into()
    });
    h.ok(23, 1 | 1 << 31);
    h.ok(25, 0);
    h.card.log.reset();
    h.ok(13, 1 << 16);
    h.ok(13, 1 << 16);
    h.card.write_data(h.now, &[1; 512]).expect("data");
    let times: Vec<u64> = h.card.log.entries.iter().map(|e| e.busy_us).collect();
    assert_eq!(times, [0, 0]);
    assert_eq!(h.card.log.busy_of(25), us(300));
}

/// With a seed a torn operation leaves any of its parts done, the same ones each time; and without
/// one the first ones. What had the time to end is whole.
#[test]
fn torn_operations_leave_any_part_of_them() {
    const GROUP: u64 = 1024;
    const GROUPS: u64 = 64;
    // Groups of an erase, sectors of a write, that have changed after `share` of 64 parts' time.
    let torn = |seed: Option<u64>, write: bool, share: u64| -> Vec<u64> {
        let timing = Timing {
            erase_group_us: 100,
            write_us: 100 * GROUPS,
            ..Timing::zero()
        };
        let fields = Fields {
            cache_size_kibit: 0,
            ..Fields::default()
        };
        let mut h = Host::with_pattern(Config {
            timing,
            eviction_seed: seed,
            ..fields.into()
        });
        if write {
            h.write_only(0, GROUPS as u32, 9, false);
        } else {
            h.ok(35, 0);
            h.ok(36, (GROUPS * GROUP - 1) as u32);
            h.ok(38, argument::SECURE_ERASE);
        }
        h.now += us(100 * share);
        after_cut(&mut h);
        let unit = if write { 1 } else { GROUP };
        (0..GROUPS)
            .filter(|n| h.what(n * unit) != What::Pattern)
            .collect()
    };
    for write in [false, true] {
        let first: Vec<u64> = (0..32).collect();
        assert_eq!(torn(None, write, 32), first, "write: {write}");
        let (one, two) = (torn(Some(1), write, 32), torn(Some(2), write, 32));
        assert_ne!(one, two, "write: {write}");
        assert_eq!(one, torn(Some(1), write, 32), "write: {write}");
        for parts in [one, two] {
            assert!((16..48).contains(&parts.len()), "write: {write}: {parts:?}");
            assert!(parts[parts.len() - 1] >= parts.len() as u64, "{parts:?}");
        }
        assert_eq!(torn(Some(1), write, 0), [] as [u64; 0]);
        assert_eq!(torn(Some(1), write, 64).len() as u64, GROUPS);
    }
}
