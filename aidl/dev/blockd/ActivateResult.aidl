/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.ErrorCode;
import dev.blockd.StepTime;

/** What became of one ActivateRequest. */
parcelable ActivateResult {
    /** OK, or why this item failed. */
    ErrorCode error = ErrorCode.OK;
    /** The failure in the form of ErrorCode's messages; null where there is none. */
    @nullable String message;
    /** Where it is mounted, by name and version; empty where the item failed. */
    String mountPoint;
    /** Version from the manifest. */
    long version;
    /** Why this strategy was chosen. */
    String reason;
    /** What was not had as asked. */
    String[] warnings;
    /** Time per step. */
    StepTime[] steps;
}
