/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.CacheFacts;
import dev.blockd.CardFacts;
import dev.blockd.Finding;
import dev.blockd.FuaReport;
import dev.blockd.FuaRequest;
import dev.blockd.IProgress;

/**
 * Looks, and changes nothing but scratch files of the caller's.
 *
 * Registered as `dev.blockd.IDiagnostics/default`. Callers: uid 0, 1000 and 2000 in the domains
 * shell and dumpstate. Errors: EX_SECURITY for everybody else.
 */
interface IDiagnostics {
    /**
     * What is known of a disk: the identity and health of a card, and what a reset is planned with.
     *
     * Errors: NO_SUCH_DEVICE, NOT_EMMC.
     *
     * @param disk kernel name; null = the only eMMC.
     */
    CardFacts card(in @nullable String disk);

    /**
     * What is known of the caches between a file system and the medium of a disk: what the kernel
     * sends, what the card keeps, how the file systems above are mounted; and whether what an fsync
     * acknowledged survives a power cut.
     *
     * Errors: NO_SUCH_DEVICE, NOT_EMMC.
     *
     * @param disk kernel name; null = the only eMMC.
     */
    CacheFacts cache(in @nullable String disk);

    /**
     * Measures what FUA costs on the caller's file or device, whose first bytes are overwritten. One
     * measurement at a time; it ends early where the receiver of its progress has died.
     *
     * Errors: INVALID_REQUEST, OUT_OF_RANGE (the device is too small, the file system full),
     * READ_ONLY, UNSUPPORTED (no direct I/O to a disk), BUSY, CANCELLED, DEVICE_FAILED (an operation
     * failed, or took longer than the limit).
     */
    FuaReport measureFua(in FuaRequest request, in @nullable IProgress progress);

    /** What this kernel, card and build allow. */
    Finding[] doctor();
}
