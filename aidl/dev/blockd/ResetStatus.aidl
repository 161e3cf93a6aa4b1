/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.ResetState;

/** Where a reset stands. */
parcelable ResetStatus {
    /** State. */
    ResetState state = ResetState.IDLE;
    /** The step at work, or at which the last run ended; empty when idle. */
    String step;
    /** Milliseconds since the run started; of the last run once it ended. */
    long elapsedMillis;
    /** The error of a failed run; empty otherwise. */
    String message;
    /** True where misc holds a marker of ours: a run was cut, or is not finished yet. */
    boolean markerPresent;
}
