//! Stores and their scan.
mod common;
use common::{Host, SEED};
use emmc::card::{argument, Fields};
use emmc::store::{
    scan, scan_card, Extent, FileStore, MemStore, NamedRange, Pattern, ScanReport, Store, SECTOR,
};

/// The same random writes and erases on a store and on a plain vector.
fn exercise(store: &mut dyn Store, erased: u8, sectors: u64) {
    store.set_erased_value(erased);
    let initial = |lba: u64| match store.pattern() {
        Some(p) => p.sector(lba),
        None => {
            let mut buf = [0; SECTOR];
            store.read(lba, &mut buf).expect("read");
            buf
        }
    };
    let mut model: Vec<[u8; SECTOR]> = (0..sectors).map(initial).collect();
    let mut x = 7u64;
    let mut next = |n: u64| {
        x = x
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (x >> 33) % n
    };
    for round in 0..300u64 {
        let start = next(sectors);
        let range = start..(start + next(40)).min(sectors);
        if next(2) == 0 {
            store.erase(range.clone()).expect("erase");
            range.for_each(|i| model[i as usize] = [erased; SECTOR]);
        } else {
            let data = vec![round as u8; (range.end - range.start) as usize * SECTOR];
            store.write(start, &data).expect("write");
            range.for_each(|i| model[i as usize] = [round as u8; SECTOR]);
        }
    }
    // restore one sector's pattern by writing it: judged by content
    if let Some(p) = store.pattern() {
        store.write(5, &p.sector(5)).expect("write");
        store.write(6, &p.sector(5)).expect("write"); // misplaced: not sector 6's
        model[5] = p.sector(5);
        model[6] = p.sector(5);
    }
    let mut all = vec![0; sectors as usize * SECTOR];
    store.read(0, &mut all).expect("read");
    assert!(all.chunks(SECTOR).zip(&model).all(|(a, b)| a == b));

    let ranges = [
        NamedRange::new("all", 0, sectors),
        NamedRange::new("odd", 3, sectors - 10),
    ];
    let report = scan(store, &ranges).expect("scan");
    for r in &report.ranges {
        let part = r.range.start..r.range.start + r.range.sectors;
        let of = |f: &dyn Fn(u64) -> bool| part.clone().filter(|i| f(*i)).collect::<Vec<_>>();
        let is_erased = |i: u64| model[i as usize] == [erased; SECTOR];
        let is_pattern = |i: u64| {
            store
                .pattern()
                .is_some_and(|p| p.sector(i) == model[i as usize])
        };
        let (e, p) = (of(&is_erased), of(&is_pattern));
        let o = of(&|i| !is_erased(i) && !is_pattern(i));
        assert_eq!(
            (r.erased, r.pattern, r.other),
            (e.len() as u64, p.len() as u64, o.len() as u64)
        );
        assert_eq!(r.first_erased, e[..e.len().min(8)]);
        assert_eq!(r.first_pattern, p[..p.len().min(8)]);
        assert_eq!(r.first_other, o[..o.len().min(8)]);
        assert!(r.erased > 0 && r.other > 0);
    }
    let mut at = 0;
    for (range, _) in store.extents(0..sectors).expect("extents") {
        assert_eq!(range.start, at);
        at = range.end;
    }
    assert_eq!(at, sectors);
}

#[test]
fn stores_agree_with_a_plain_vector() {
    for erased in [0, 0xff] {
        exercise(&mut MemStore::new(256), erased, 256);
        let mut store = MemStore::with_pattern(256, Pattern { seed: 1 });
        exercise(&mut store, erased, 256);
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("medium");
        let mut store = FileStore::open(&path, 256).expect("file");
        exercise(&mut store, erased, 256);
        assert_eq!(std::fs::metadata(&path).expect("stat").len(), 256 * 512);
    }
}

#[test]
fn stores_end_where_they_end() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = FileStore::open(&dir.path().join("m"), 8).expect("file");
    let stores: [Box<dyn Store>; 2] = [Box::new(MemStore::new(8)), Box::new(file)];
    for mut store in stores {
        assert_eq!(store.sectors(), 8);
        assert!(store.read(8, &mut [0; 512]).is_err());
        assert!(store.write(7, &[0; 1024]).is_err());
        assert!(store.write(0, &[0; 100]).is_err());
        assert!(store.erase(0..9).is_err());
        let beyond = NamedRange::new("x", 1, 8);
        assert!(scan(&*store, &[beyond]).is_err());
    }
}

/// 4 GiB of which almost nothing is touched: a handful of extents, no sector read.
#[test]
fn big_cards_are_counted_by_extent() {
    let sectors = 8 << 20;
    let mut h = Host::with_pattern(Fields {
        sectors,
        ..Fields::default()
    });
    h.erase(1024, 1024 * 4000 - 1, argument::SECURE_ERASE);
    h.write(2000, 3, 0x55, true);
    h.write(5, 1, 0x77, false);
    let extents = h.card.store().extents(0..u64::from(sectors));
    let extents = extents.expect("extents");
    assert_eq!(
        extents.iter().map(|(_, kind)| *kind).collect::<Vec<_>>(),
        [
            Extent::Pattern,
            Extent::Erased,
            Extent::Data,
            Extent::Erased,
            Extent::Pattern
        ]
    );
    let ranges = [
        NamedRange::new("before", 0, 1024),
        NamedRange::new("target", 1024, 1024 * 3999),
        NamedRange::new("after", 1024 * 4000, u64::from(sectors) - 1024 * 4000),
    ];
    let report = scan_card(&h.card, &ranges).expect("scan");
    let counts: Vec<_> = report
        .ranges
        .iter()
        .map(|r| (r.pattern, r.erased, r.other, r.dirty))
        .collect();
    assert_eq!(
        counts,
        [
            (1024, 0, 0, 1),
            (0, 1024 * 3999 - 3, 3, 0),
            (u64::from(sectors) - 1024 * 4000, 0, 0, 0)
        ]
    );
    let target = report.range("target").expect("target");
    assert_eq!(target.first_other, [2000, 2001, 2002]);
    assert_eq!(report.pattern_seed, Some(SEED));

    let json = serde_json::to_string(&report).expect("JSON");
    let back: ScanReport = serde_json::from_str(&json).expect("JSON");
    assert_eq!(back, report);
}
