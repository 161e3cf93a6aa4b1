/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** One pattern over one write path. */
parcelable FuaRow {
    /** `seq-read`, `rand-read`, `seq-write`, `rand-write`. */
    String pattern;
    /** `direct`, `fua`, `flush`. */
    String path;
    /** Bandwidth of each run, in bytes per second. */
    long[] bytesPerSecond;
    /** Latency percentiles 50, 90, 99 and 100, in microseconds. */
    long[] latencyMicros;
}
