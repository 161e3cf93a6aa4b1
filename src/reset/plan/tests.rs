//! Tables of facts and requests in, plans out. What is refused is tried over the card model, where
//! it is seen too that nothing was sent.

use super::*;
use crate::fact::Fact;
use crate::reset::facts::misc::Misc;
use crate::reset::facts::Disk;
use crate::reset::marker::Merge;

const GROUP: u64 = 1024;
const CAPACITY: u64 = 1 << 23;

fn csd() -> ExtCsd {
    let mut bytes = [0; 512];
    bytes[175] = 1;
    bytes[192] = 8;
    bytes[212..216].copy_from_slice(&(CAPACITY as u32).to_le_bytes());
    bytes[223] = 2;
    bytes[224] = 1;
    bytes[230] = 3;
    bytes[231] = 0x05;
    ExtCsd(bytes)
}

fn partition(name: &str, start: u64, length: u64) -> Partition {
    Partition {
        name: name.to_owned(),
        node: format!("mmcblk0-{name}"),
        range: SectorRange {
            start: Sectors(start),
            length: Sectors(length),
        },
    }
}

fn facts(targets: &[(&str, u64, u64)]) -> Facts {
    let known = |text: &str| Fact::known(text.to_owned(), "here");
    let partitions: Vec<Partition> = targets
        .iter()
        .map(|(n, s, l)| partition(n, *s, *l))
        .collect();
    Facts {
        disk: Disk {
            name: "mmcblk0".to_owned(),
            capacity: Sectors(CAPACITY),
            kind: known("MMC"),
            card_name: known("RSEMMC"),
            manfid: Fact::known(0xfe, "here"),
            cid: known("fe01"),
            c_size: Fact::known(0xfff, "here"),
            csd_group: Fact::known(Sectors(GROUP), "here"),
            rca: Fact::known(1, "here"),
            erase_size: Fact::known(Bytes(GROUP * 512), "here"),
            discard_max: Fact::known(Bytes(7 * GROUP * 512), "here"),
            write_cache: known("write back"),
            fua: known("1"),
            read_only: Fact::known(false, "here"),
            ext_csd: Fact::known(csd(), "CMD8"),
            holders: Vec::new(),
        },
        targets: partitions
            .iter()
            .map(|p| Target {
                partition: p.clone(),
                holders: Vec::new(),
                read_only: Fact::known(false, "here"),
            })
            .collect(),
        busy: Vec::new(),
        allowed: partitions.iter().map(|p| p.name.clone()).collect(),
        partitions,
        misc: Misc {
            partition: None,
            marker: Fact::unknown("no misc", None),
            merge: Fact::known(Merge::None, "no misc"),
        },
        marker: Fact::unknown("no misc", None),
        hung_task: None,
    }
}

fn planned(targets: &[(&str, u64, u64)]) -> Plan {
    let names: Vec<&str> = targets.iter().map(|t| t.0).collect();
    plan(&Request::new(&names), &facts(targets), 7).expect("a plan")
}

#[test]
fn one_command_names_whole_groups_inside_the_range() {
    // (start, length) of the partition; first and last sector named to the card, if any.
    let table = [
        ((1024, 2048), Some((1024, 3071))),
        ((1024, 1), None),
        ((1000, 2048), Some((1024, 2047))),
        ((67592, 4096), Some((68608, 71679))),
        ((1023, 1026), Some((1024, 2047))),
        ((1025, 2046), None),
    ];
    for ((start, length), named) in table {
        let plan = planned(&[("userdata", start, length)]);
        let target = &plan.targets[0];
        let commands: Vec<_> = target.chunks().map(|c| c.commands.clone()).collect();
        match named {
            None => assert!(commands.is_empty(), "{start}+{length}"),
            Some((first, last)) => {
                assert_eq!(commands.len(), 1);
                let sent: Vec<(u8, u32)> =
                    commands[0].iter().map(|c| (c.index, c.argument)).collect();
                assert_eq!(sent, [(35, first), (36, last), (38, 0x8000_0000)]);
            }
        }
    }
}

#[test]
fn the_limit_follows_the_register() {
    let plan = planned(&[("userdata", 0, 1000 * GROUP)]);
    // 300 ms × 2 × 3 × 1000 groups
    assert_eq!(
        plan.targets[0].chunks().next().map(|c| c.limit),
        Some(Duration::from_secs(1800))
    );
}

#[test]
fn the_kernel_s_own_way_is_shown_beside_ours() {
    // 2048 groups at 7 a command: measured with the kernel's blkdiscard --secure.
    let plan = planned(&[("userdata", 0, 2048 * GROUP)]);
    let target = &plan.targets[0];
    assert_eq!(target.cost.map(|c| c.commands), Some(1));
    assert_eq!(target.kernel_cost.map(|c| c.commands), Some(293));
    let plan = planned(&[("tiny", 1, 5)]);
    assert_eq!(
        (plan.targets[0].cost, plan.targets[0].kernel_cost),
        (None, None)
    );
}

#[test]
fn adjacent_targets_are_no_neighbours_of_each_other() {
    let plan = planned(&[
        ("metadata", GROUP, 2 * GROUP),
        ("userdata", 3 * GROUP, 2 * GROUP),
    ]);
    for target in &plan.targets {
        assert_eq!(target.neighbours.len(), 1, "{target:?}");
        for other in &plan.targets {
            assert!(!target.neighbours[0].overlaps(other.range));
        }
    }
}

#[test]
fn keys_are_erased_first() {
    let plan = planned(&[("userdata", 0, GROUP), ("metadata", 2 * GROUP, GROUP)]);
    let order: Vec<&str> = plan
        .targets
        .iter()
        .map(|t| t.partition.name.as_str())
        .collect();
    assert_eq!(order, ["metadata", "userdata"]);
}

#[test]
fn the_worth_is_that_of_the_weakest_part() {
    assert_eq!(planned(&[("a", 0, GROUP)]).assurance, Assurance::Purge);
    assert_eq!(planned(&[("a", 0, GROUP + 1)]).assurance, Assurance::Clear);
    let mixed = planned(&[("a", 0, GROUP), ("b", 5 * GROUP, GROUP + 1)]);
    assert_eq!(mixed.assurance, Assurance::Clear);
    let tiny = planned(&[("a", 3, 10)]);
    assert_eq!(
        (tiny.assurance, tiny.physical),
        (Assurance::Clear, Physical::None)
    );
}

#[test]
fn the_queue_that_says_write_through_is_not_believed() {
    let mut facts = facts(&[("userdata", 0, GROUP)]);
    facts.disk.write_cache = Fact::known("write through".to_owned(), "here");
    let request = Request::new(&["userdata"]);
    assert!(!plan(&request, &facts, 7).expect("no cache").flush_by_switch);
    let mut cached = csd();
    cached.0[33] = 1;
    cached.0[249] = 1;
    facts.disk.ext_csd = Fact::known(cached, "CMD8");
    assert!(plan(&request, &facts, 7).expect("a cache").flush_by_switch);
}

#[test]
fn samples_and_neighbours_keep_to_their_sides() {
    fn property(start: u32, length: u32, seed: u64) -> bool {
        let start = u64::from(start) % (CAPACITY - 1);
        let length = 1 + u64::from(length) % (CAPACITY - start);
        let facts = facts(&[("userdata", start, length)]);
        let plan = plan(&Request::new(&["userdata"]), &facts, seed).expect("a plan");
        let target = &plan.targets[0];
        let middle = target.parts.middle;
        let borders = middle.is_empty()
            || (target.samples.contains(&middle.start)
                && target.samples.contains(&(middle.end() - Sectors(1))));
        borders
            && target.samples.iter().all(|s| middle.contains(*s))
            && target
                .sample_blocks(Sectors(8))
                .iter()
                .all(|s| middle.contains(*s) && middle.contains(*s + Sectors(7)))
            && target.neighbours.iter().all(|n| {
                !n.overlaps(target.range) && n.end() <= Sectors(CAPACITY) && n.length.0 <= 2048
            })
            // Every sector of a shared group that is not ours is watched.
            && (start % GROUP == 0
                || target.neighbours.iter().any(|n| n.contains(Sectors(start - start % GROUP))))
    }
    quickcheck::quickcheck(property as fn(u32, u32, u64) -> bool);
}

#[test]
fn another_seed_looks_elsewhere() {
    let facts = facts(&[("userdata", 0, 4096 * GROUP)]);
    let request = Request::new(&["userdata"]);
    let first = plan(&request, &facts, 1).expect("a plan");
    let second = plan(&request, &facts, 2).expect("a plan");
    assert_ne!(first.targets[0].samples, second.targets[0].samples);
    assert_eq!(first, plan(&request, &facts, 1).expect("a plan"), "pure");
}

#[test]
fn probabilities_are_those_of_the_textbook() {
    assert!((detection_probability(260) - 0.9267).abs() < 0.001);
    assert_eq!(detection_probability(0), 0.0);
}

#[test]
fn a_small_card_that_may_count_either_way_gets_no_address() {
    let mut facts = facts(&[("userdata", 1024, 2048)]);
    facts.disk.capacity = Sectors(1 << 21);
    let mut bytes = csd();
    bytes.0[212..216].copy_from_slice(&(1u32 << 21).to_le_bytes());
    facts.disk.ext_csd = Fact::known(bytes, "CMD8");
    let mut request = Request::new(&["userdata"]);
    let with = |facts: &Facts, c_size: Fact<u16>, request: &Request| {
        let mut facts = facts.clone();
        facts.disk.c_size = c_size;
        plan(request, &facts, 7)
    };
    for unclear in [Fact::known(0xfff, "here"), Fact::unknown("denied", None)] {
        let failure = with(&facts, unclear.clone(), &request).expect_err("a plan");
        assert_eq!(failure.code, Code::Unsupported);
        assert!(failure.remedy.contains("overwrite"), "{failure:?}");
        request.method = Method::Overwrite;
        with(&facts, unclear, &request).expect("overwriting needs no address");
        request.method = Method::Auto;
    }
    let plan = with(&facts, Fact::known(0x3ff, "here"), &request).expect("a plan");
    let named: Vec<u32> = plan.targets[0]
        .chunks()
        .flat_map(|chunk| chunk.commands.iter().map(|c| c.argument))
        .collect();
    assert_eq!(named[..2], [1024 * 512, 3071 * 512]);
}

#[test]
fn more_sequences_than_can_be_held_are_refused() {
    const MOST: u64 = 65_536;
    let mut big = csd();
    big.0[212..216].copy_from_slice(&u32::MAX.to_le_bytes());
    for (groups, fits) in [(MOST, true), (MOST + 1, false)] {
        let mut facts = facts(&[("userdata", GROUP, groups * GROUP)]);
        facts.disk.capacity = Sectors(u64::from(u32::MAX));
        facts.disk.ext_csd = Fact::known(big.clone(), "CMD8");
        let mut request = Request::new(&["userdata"]);
        request.max_chunk = Bytes(GROUP * 512);
        match plan(&request, &facts, 7) {
            Ok(plan) => {
                assert!(fits);
                assert_eq!(plan.targets[0].middle.len() as u64, MOST);
                assert!(plan.steps().len() < 100);
            }
            Err(failure) => {
                assert!(!fits, "{failure:?}");
                assert_eq!(failure.code, Code::InvalidRequest);
                assert!(failure.remedy.contains("--max-chunk"), "{failure:?}");
            }
        }
    }
}

#[test]
fn the_erase_group_is_that_of_the_register_that_counts() {
    let by_csd = {
        let mut bytes = csd();
        bytes.0[175] = 0;
        bytes
    };
    let known = |group| Fact::known(Sectors(group), "here");
    let table = [
        (csd(), Fact::unknown("denied", None), None),
        (csd(), known(GROUP / 2), None),
        (by_csd.clone(), known(GROUP), None),
        (by_csd.clone(), known(GROUP / 2), Some("by the CSD")),
        (by_csd.clone(), known(4 * GROUP), Some("by the CSD")),
        (by_csd, Fact::unknown("denied", None), Some("unknown")),
    ];
    for (register, group, refused) in table {
        let mut facts = facts(&[("userdata", 8 * GROUP, 4 * GROUP)]);
        facts.disk.ext_csd = Fact::known(register, "CMD8");
        facts.disk.csd_group = group.clone();
        match (plan(&Request::new(&["userdata"]), &facts, 7), refused) {
            (Ok(_), None) => {}
            (Err(failure), Some(text)) => {
                assert_eq!(failure.code, Code::DeviceFailed);
                assert!(failure.message.contains(text), "{failure:?}");
                assert!(!failure.remedy.is_empty());
            }
            (result, _) => panic!("{group:?}: {result:?}"),
        }
    }
}
