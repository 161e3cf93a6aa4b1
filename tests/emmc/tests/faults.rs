//! Faults fire as armed; every lie breaks what it names.
mod common;
use common::{borders, Host, What};
use emmc::card::{argument, bits, Config, Effect, Fault, Fields, Lies};

const PATTERN: What = What::Pattern;
const ZERO: What = What::Byte(0);

/// 8 GiB, sector addressed.
fn fields() -> Fields {
    Fields::default()
}

#[test]
fn faults_fire_once_on_the_nth_command() {
    let two = |host: &mut Host| {
        let one = host.r1(16, 512) & bits::ERRORS;
        (one, host.r1(16, 512) & bits::ERRORS)
    };
    let mut h = Host::new(fields());
    h.card
        .inject(Fault::new(16, 2, Effect::Response(bits::ERROR)));
    assert_eq!(two(&mut h), (0, bits::ERROR));
    assert_eq!(two(&mut h), (0, 0));
    h.card.inject(Fault::new(16, 1, Effect::Later(bits::ERROR)));
    assert_eq!(two(&mut h), (0, bits::ERROR));

    // executed or not
    let table = [
        (Effect::Response(bits::ERROR), Some(bits::ERROR), ZERO),
        (Effect::Refuse(bits::ERROR), Some(bits::ERROR), PATTERN),
        (Effect::Later(bits::WP_ERASE_SKIP), Some(0), ZERO),
        (Effect::NoResponse, None, ZERO),
        (Effect::Deaf, None, PATTERN),
    ];
    for (effect, status, after) in table {
        let mut h = Host::with_pattern(fields());
        h.card.inject(Fault::new(38, 1, effect));
        h.ok(35, 0);
        h.ok(36, 0);
        let got = h.cmd(38, 0).r1().map(|s| s & bits::ERRORS);
        assert_eq!(got, status, "{effect:?}");
        h.errors();
        h.cmd(16, 512); // ends a sequence that CMD38 left open
        assert_eq!(h.what(0), after, "{effect:?}");
        assert_eq!(h.card.log.count(38), 1);
    }
}

/// Every lie changes what an honest card does.
#[test]
fn lies_break_what_they_name() {
    let (p, z) = (PATTERN, ZERO);
    let honest = [p, p, z, z, z, z, p];
    let table = [
        (Lies::default(), honest),
        (
            Lies {
                skip_groups: vec![2],
                ..Lies::default()
            },
            [p, p, z, z, p, p, p],
        ),
        (
            Lies {
                skip_every: Some(2),
                ..Lies::default()
            },
            [p, p, z, z, p, p, p],
        ),
        (
            Lies {
                no_rounding: true,
                ..Lies::default()
            },
            [p, p, p, z, z, p, p],
        ),
        (
            Lies {
                widen_groups: 1,
                ..Lies::default()
            },
            [z, z, z, z, z, z, z],
        ),
    ];
    for (lies, want) in table {
        let mut h = Host::with_pattern(Config {
            lies: lies.clone(),
            ..fields().into()
        });
        assert_eq!(h.erase(1030, 2050, argument::SECURE_ERASE), (0, 0));
        assert_eq!(borders(&mut h), want, "{lies:?}");
    }
}
