/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.ErrorCode;
import dev.blockd.StepTime;

/** What became of one AttachRequest. */
parcelable AttachResult {
    /** OK, or why this item failed. The other items are not touched by it. */
    ErrorCode error = ErrorCode.OK;
    /** The failure in the form of ErrorCode's messages; null where there is none. */
    @nullable String message;
    /** The open device: the lease. Null where the item failed. */
    @nullable ParcelFileDescriptor device;
    /** Path of the node, e.g. `/dev/block/loop7`; empty where the item failed. */
    String node;
    /** Loop device number; -1 where the item failed. */
    int loopNumber = -1;
    /** Why this strategy was chosen. */
    String reason;
    /** What was not had as asked (direct I/O …). */
    String[] warnings;
    /** Time per step. */
    StepTime[] steps;
}
