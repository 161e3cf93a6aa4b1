/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/**
 * Kind of a failure: the service-specific code of every error that blockd answers with.
 *
 * The message of the Status is one line of text for people, followed by lines of the form
 * `step=STEP`, `errno=NUMBER` (Linux errno, where the kernel said one) and `remedy=TEXT`.
 * A caller without the right gets EX_SECURITY instead, with the same kind of text.
 */
@Backing(type="int")
enum ErrorCode {
    /** No error. Never the code of a Status; the value of `error` in per-item results. */
    OK = 0,
    /** No GPT partition has the name that was asked for. */
    NO_SUCH_PARTITION = 1,
    /** A mount, swap, device-mapper, a loop device or an exclusive open uses the target. */
    IN_USE = 2,
    /** The disk is not an eMMC. */
    NOT_EMMC = 3,
    /** The target is never erased: protected name, boot area, whole disk, not on the allow-list. */
    PROTECTED_TARGET = 4,
    /** An offset or a length lies outside the target, or is no multiple of 512 bytes. */
    OUT_OF_RANGE = 5,
    /** The device or the file is read-only. */
    READ_ONLY = 6,
    /** This device, kernel or build cannot do it. */
    UNSUPPORTED = 7,
    /** The assurance asked for cannot be reached on this card. */
    ASSURANCE_UNREACHABLE = 8,
    /** Another destructive job is running. */
    BUSY = 9,
    /** A system update is pending: its merge needs the data. */
    UPDATE_PENDING = 10,
    /** The file is not an APEX, or not a zip at all. */
    NOT_AN_APEX = 11,
    /** The payload is compressed inside the zip. */
    PAYLOAD_COMPRESSED = 12,
    /** The payload does not start on a multiple of the block size. */
    PAYLOAD_UNALIGNED = 13,
    /** A signature or a digest does not match. */
    BAD_SIGNATURE = 14,
    /** /dev/loop-control is missing. */
    NO_LOOP_CONTROL = 15,
    /** No loop device is free and none can be added. */
    NO_FREE_LOOP = 16,
    /** The caller, or blockd itself, lacks the right. */
    PERMISSION = 17,
    /** The device answered with an error. */
    DEVICE_FAILED = 18,
    /** The job was done, but the check found it wanting. */
    NOT_VERIFIED = 19,
    /** The caller cancelled the job. */
    CANCELLED = 20,
    /** The request contradicts itself or has a value that means nothing. */
    INVALID_REQUEST = 21,
    /** The service is not there (said by clients only). */
    NO_SERVICE = 22,
    /** A restart marker of somebody else is in the way. */
    FOREIGN_MARKER = 23,
    /** The device changed between planning and acting. */
    PLAN_STALE = 24,
    /** No such device: a loop or dm device, a disk. */
    NO_SUCH_DEVICE = 25,
    /** A device node did not appear in time. */
    NODE_MISSING = 26,
}
