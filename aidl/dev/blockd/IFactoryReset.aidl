/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.IProgress;
import dev.blockd.ResetPlan;
import dev.blockd.ResetReport;
import dev.blockd.ResetRequest;
import dev.blockd.ResetStatus;

/**
 * Erases partitions of an eMMC so that nothing comes back.
 *
 * Registered as `dev.blockd.IFactoryReset/default`, in recovery only. Callers: uid 0 in the domain
 * recovery. Errors: EX_SECURITY for everybody else; service-specific ErrorCode otherwise.
 */
interface IFactoryReset {
    /**
     * Decides what run() would do with the same request, and touches nothing.
     *
     * Errors: any of NO_SUCH_PARTITION, IN_USE, NOT_EMMC, PROTECTED_TARGET, OUT_OF_RANGE,
     * READ_ONLY, UNSUPPORTED, ASSURANCE_UNREACHABLE, UPDATE_PENDING, FOREIGN_MARKER, NOT_VERIFIED
     * (third attempt failed), INVALID_REQUEST, PERMISSION, DEVICE_FAILED. Nothing was sent to the
     * card but CMD8 and reads of misc.
     */
    ResetPlan plan(in ResetRequest request);

    /**
     * Erases, verifies and reports. Returns only when all of it is done and verified.
     *
     * Errors: those of plan(), of which none has touched the card; BUSY while another run is at
     * work (the text says of what, and where it is); PLAN_STALE; CANCELLED; DEVICE_FAILED and NOT_VERIFIED, after which the range must be
     * taken for neither kept nor erased.
     *
     * @param progress told about the steps; null = nobody.
     */
    ResetReport run(in ResetRequest request, in @nullable IProgress progress);

    /**
     * Removes the restart marker, after the caller has formatted. Without one it does nothing.
     *
     * Errors: INVALID_REQUEST for the token of another run; FOREIGN_MARKER for a bootloader message
     * that is not ours; BUSY while a reset runs.
     *
     * @param token the report's.
     * @param markerFile the marker's file; null = misc.
     */
    void finish(in String token, in @nullable ParcelFileDescriptor markerFile);

    /** Where the current or last run stands. It never waits for a run. */
    ResetStatus status();

    /**
     * Asks the running reset to stop at the next border between commands. A command that the card
     * has begun cannot be called back. Without a run it does nothing: it stops no run that begins
     * later.
     */
    void cancel();

    /**
     * The report of the last run that destroyed anything, or null; its `error` says whether it is
     * complete. Where the service was started with `--state DIR` it outlives the service.
     */
    @nullable ResetReport lastReport();
}
