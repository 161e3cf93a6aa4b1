//! Power failures at a chosen command.
mod common;
use common::{switch_arg, Host, What};
use emmc::card::{argument, Fields, Moment, Outage, Response};
use std::collections::VecDeque;

/// Fails at the nth command of an index; keeps the cache lines of one parity.
struct At {
    command: u8,
    nth: u64,
    moment: Moment,
}

impl Outage for At {
    fn command(&mut self, command: u8, _argument: u32) -> Option<Moment> {
        if command == self.command {
            self.nth -= 1;
        }
        (self.nth == 0).then_some(self.moment)
    }
    fn written_back(&mut self, line: u64) -> bool {
        line.is_multiple_of(2)
    }
}

fn at(command: u8, nth: u64, moment: Moment) -> Box<dyn Outage> {
    Box::new(At {
        command,
        nth,
        moment,
    })
}

/// Off, and nothing but the mains brings it back.
fn dark(h: &mut Host) {
    assert!(h.card.mains_failed() && !h.card.powered());
    h.card.power_on();
    assert!(!h.card.powered());
    assert_eq!(h.cmd(0, 0), Response::None);
    h.card.mains_back();
    h.card.power_on();
    h.identify();
    assert!(!h.card.mains_failed());
}

#[test]
fn an_erase_is_torn_at_the_share() {
    for (share, gone) in [(0, 0), (1, 0), (499, 1), (500, 2), (999, 3), (1000, 4)] {
        let mut h = Host::with_pattern(Fields::default());
        h.card.fail_by(at(38, 1, Moment::During(share)));
        h.ok(35, 8192);
        h.ok(36, 8192 + 4095);
        assert_eq!(h.cmd(38, argument::SECURE_ERASE), Response::None);
        dark(&mut h);
        let erased = (0..4).filter(|g| h.what(8192 + g * 1024) == What::Byte(0));
        assert_eq!(erased.count(), gone, "{share} per mille");
    }
}

#[test]
fn before_a_command_nothing_of_it_happens() {
    let mut h = Host::with_pattern(Fields::default());
    h.card.fail_by(at(38, 2, Moment::Before));
    for group in [8, 9] {
        h.ok(35, group * 1024);
        h.ok(36, group * 1024);
        h.cmd(38, argument::SECURE_ERASE);
    }
    dark(&mut h);
    let got = [8, 9].map(|group| h.what(group * 1024));
    assert_eq!(got, [What::Byte(0), What::Pattern]);
}

/// A reliable write tears at a sector; of the cache, what was chosen is on the medium.
#[test]
fn writes_and_cache() {
    let mut h = Host::with_pattern(Fields::default());
    for line in 0..4 {
        h.write(line * 8, 8, 7, false);
    }
    h.card.fail_by(at(25, 1, Moment::During(500)));
    h.write_only(800, 8, 9, true);
    dark(&mut h);
    let lines = [0, 1, 2, 3].map(|line| h.what(line * 8));
    let (kept, lost) = (What::Byte(7), What::Pattern);
    assert_eq!(lines, [kept, lost, kept, lost]);
    let mut sectors: VecDeque<_> = (800..808).map(|s| h.what(s)).collect();
    let new = sectors.drain(..4).collect::<Vec<_>>();
    assert_eq!(new, [What::Byte(9); 4]);
    assert!(sectors.iter().all(|s| *s == What::Pattern));
}

/// A flush that is cut has written some lines back.
#[test]
fn a_flush_is_torn() {
    let mut h = Host::with_pattern(Fields::default());
    for line in [1, 3, 5, 7] {
        h.write(line * 8, 8, 7, false);
    }
    h.card.fail_by(at(6, 1, Moment::During(500)));
    assert_eq!(h.cmd(6, switch_arg(32, 1)), Response::None);
    dark(&mut h);
    let kept = [1, 3, 5, 7].map(|line| h.what(line * 8) == What::Byte(7));
    assert_eq!(kept, [true, true, false, false]);
}

/// An outage that has not come is forgotten with the mains.
#[test]
fn an_outage_can_be_called_off() {
    let mut h = Host::with_pattern(Fields::default());
    h.card.fail_by(at(38, 1, Moment::Before));
    h.card.mains_back();
    h.ok(35, 8192);
    h.ok(36, 8192);
    h.ok(38, argument::SECURE_ERASE);
    assert_eq!(h.what(8192), What::Byte(0));
}
