/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** A measurement of what FUA costs. */
parcelable FuaRequest {
    /** The scratch file or device, opened for reading and writing with O_DIRECT. */
    ParcelFileDescriptor file;
    /** Bytes of it that may be overwritten, from its start. */
    long lengthBytes;
    /** Runs of each pattern. */
    int runs = 5;
}
