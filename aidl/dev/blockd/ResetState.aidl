/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** Where a reset stands. */
@Backing(type="int")
enum ResetState {
    /** None has run since the service started. */
    IDLE = 0,
    /** One is running. */
    RUNNING = 1,
    /** The last one succeeded. */
    DONE = 2,
    /** The last one failed. */
    FAILED = 3,
}
