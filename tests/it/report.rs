//! The report as a certificate and over restarts.

mod certificate;
mod kept;
mod markup;

use crate::case::Case;
use crate::needs::Need;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("report::the_checker_finds_bad_markup", markup::finds_faults),
        Case::new(
            "report::a_certificate_says_it_all",
            certificate::says_it_all,
        )
        .needs(&[Need::Host]),
        Case::new(
            "report::a_purge_certificate_has_the_answers_of_sanitize",
            certificate::sanitize,
        )
        .needs(&[Need::Host]),
        Case::new("report::a_hostile_card_is_escaped", certificate::hostile).needs(&[Need::Host]),
        Case::new(
            "report::a_certificate_is_never_replaced",
            certificate::never_replaced,
        )
        .needs(&[Need::Host]),
        Case::new(
            "report::a_certificate_that_cannot_be_written_stops_the_reset",
            certificate::checked_first,
        )
        .needs(&[Need::Host]),
        Case::new("report::a_report_survives_a_restart", kept::restart),
        Case::new(
            "report::a_failed_run_has_a_report_and_no_certificate",
            kept::failed,
        )
        .needs(&[Need::Host]),
        Case::new("report::a_damaged_file_is_no_report", kept::damaged),
        Case::new(
            "report::a_folder_that_is_gone_is_a_warning",
            kept::folder_gone,
        ),
        Case::new("report::the_binaries_keep_it_too", kept::binaries).needs(&[Need::Host]),
        Case::new("report::every_key_is_documented", kept::documented).needs(&[Need::Host]),
    ]
}
