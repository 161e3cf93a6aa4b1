/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** A measurement of what FUA costs. */
parcelable FuaRequest {
    /**
     * The scratch file or device, open with O_RDWR and O_DIRECT. A file that is too short grows. The
     * service opens nothing itself.
     */
    ParcelFileDescriptor file;
    /** Bytes of it that may be overwritten, from its start; at most 16 GiB. */
    long lengthBytes;
    /** Runs of each pattern and path, 1 to 100. */
    int runs = 5;
    /** Block of the random patterns, bytes. */
    int blockBytes = 4096;
    /** Block of the sequential patterns, bytes. */
    int sequentialBlockBytes = 524288;
    /** Operations of a random run; 0 = 1000, or as many as there are blocks. */
    int operations = 0;
    /** The longest time that one operation may take, milliseconds; then the measurement fails. */
    long limitMillis = 30000;
}
