/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** How long one step took. */
parcelable StepTime {
    /** Name of the step. */
    String step;
    /** Wall time in microseconds. */
    long micros;
}
