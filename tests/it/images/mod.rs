//! Image devices on the real loop driver.
//!
//! Numbers from 1000 up, tags `blockd-test-<pid>-<case>`: nothing else on the machine is touched.

mod activate;
mod attach;
pub mod dying;
mod place;
mod real;
mod refuse;
mod rescue;
mod share;
mod soak;
mod support;

use anyhow::Result;

/// A case: its name and what it does.
pub type Case = (&'static str, fn() -> Result<()>);

/// What needs root, loop-control and LOOP_CONFIGURE.
pub const LOOP_CASES: &[Case] = &[
    (
        "forty_apexes_in_two_calls",
        attach::forty_apexes_in_two_calls,
    ),
    ("a_window_of_any_file", attach::a_window_of_any_file),
    (
        "a_writable_device_writes_to_its_file",
        attach::a_writable_device_writes_to_its_file,
    ),
    (
        "a_block_device_backs_another",
        attach::a_block_device_backs_another,
    ),
    (
        "memory_is_read_without_direct_io",
        attach::memory_is_read_without_direct_io,
    ),
    (
        "the_lease_is_the_descriptor",
        share::the_lease_is_the_descriptor,
    ),
    (
        "a_device_in_use_goes_with_its_last_opener",
        share::a_device_in_use_goes_with_its_last_opener,
    ),
    (
        "somebody_else_s_device_survives",
        share::somebody_else_s_device_survives,
    ),
    (
        "four_processes_worth_of_pools_share_numbers",
        share::four_pools_share_numbers,
    ),
    (
        "existing_devices_are_used_again",
        share::existing_devices_are_used_again,
    ),
    (
        "without_loop_configure_images_are_attached",
        rescue::without_loop_configure_images_are_attached,
    ),
    (
        "without_loop_configure_options_hold",
        rescue::without_loop_configure_options_hold,
    ),
    (
        "a_half_made_device_is_undone",
        rescue::a_half_made_device_is_undone,
    ),
    (
        "sixteen_clients_leave_nothing_and_touch_nothing",
        soak::sixteen_clients_leave_nothing_and_touch_nothing,
    ),
    (
        "a_soak_that_does_wrong_is_found",
        soak::a_soak_that_does_wrong_is_found,
    ),
    (
        "what_cannot_be_attached_is_refused",
        refuse::what_cannot_be_attached_is_refused,
    ),
    (
        "one_bad_item_spoils_no_other",
        refuse::one_bad_item_spoils_no_other,
    ),
    (
        "without_loop_control_it_is_said",
        refuse::without_loop_control_it_is_said,
    ),
    (
        "a_missing_node_is_told_from_a_late_one",
        refuse::a_missing_node_is_told_from_a_late_one,
    ),
];

/// What needs root, loop devices and EROFS: mounts without dm-verity.
pub const MOUNT_CASES: &[Case] = &[
    (
        "an_apex_is_mounted_and_goes",
        activate::an_apex_is_mounted_and_goes,
    ),
    (
        "somebody_else_s_mounts_survive",
        activate::somebody_else_s_mounts_survive,
    ),
    (
        "forty_are_activated_in_two_calls",
        activate::forty_are_activated_in_two_calls,
    ),
    (
        "what_cannot_be_mounted_leaves_nothing",
        activate::what_cannot_be_mounted_leaves_nothing,
    ),
];

/// What needs device-mapper, too.
pub const VERITY_CASES: &[Case] = &[
    (
        "verity_checks_every_read",
        activate::verity_checks_every_read,
    ),
    ("damage_is_refused", activate::damage_is_refused),
    ("a_missing_tree_is_built", activate::a_missing_tree_is_built),
    (
        "a_block_device_goes_through_dm_linear",
        activate::a_block_device_goes_through_dm_linear,
    ),
    (
        "extents_of_two_disks_are_one_device",
        activate::extents_of_two_disks_are_one_device,
    ),
    (
        "a_killed_process_leaves_nothing_that_stays",
        activate::a_killed_process_leaves_nothing_that_stays,
    ),
];

/// What needs device-mapper and the real APEX files.
pub const REAL_VERITY_CASES: &[Case] = &[(
    "real_apexes_are_activated",
    activate::real_apexes_are_activated,
)];

/// What needs the real APEX files and loop devices.
pub const APEX_CASES: &[Case] = &[
    (
        "each_real_apex_has_its_verdict",
        real::each_real_apex_has_its_verdict,
    ),
    (
        "real_payloads_are_file_systems",
        real::real_payloads_are_file_systems,
    ),
];
