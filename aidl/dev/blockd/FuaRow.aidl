/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** One pattern over one path. */
parcelable FuaRow {
    /** `seq-read`, `rand-read`, `seq-write`, `rand-write`. */
    String pattern;
    /**
     * `direct`: O_DIRECT alone. `fua`: each write with O_DSYNC semantics (RWF_DSYNC), a FUA write
     * where the disk has that. `flush`: an fdatasync after each write. Reads have the first two: what
     * lies between them is noise.
     */
    String path;
    /** Bytes of one operation. */
    int blockBytes;
    /** Operations of one run. */
    int operations;
    /** Bandwidth of each run, in bytes per second. */
    long[] bytesPerSecond;
    /** Largest minus smallest of them, in per cent of their mean. */
    double spreadPercent;
    /** Their mean against that of path `direct` of the same pattern, in per cent of that. */
    double changePercent;
    /**
     * Latency of single operations over all runs, nanoseconds: percentiles 50, 95 and 99 (at most 3
     * per cent too large), and the longest.
     */
    long[] latencyNanos;
}
