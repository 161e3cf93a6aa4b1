/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** One file to make a block device of. */
parcelable AttachRequest {
    /** The file, opened for reading (and writing, where readOnly is false): regular or block. */
    ParcelFileDescriptor file;
    /** Name for logs and for the tag `blockd:NAME` of the loop device; at most 56 bytes. */
    String name;
    /** First byte of the window; -1 = the payload of the APEX in the file. */
    long offsetBytes = -1;
    /** Length of the window in bytes; -1 = to the end (of the payload). */
    long lengthBytes = -1;
    /** Logical block size in bytes, a power of two from 512 to 4096; 0 = 4096. */
    int blockSizeBytes = 0;
    /** Read-ahead in bytes, a multiple of 512; -1 = the kernel's default. */
    long readAheadBytes = -1;
    /** Whether the device refuses writes. */
    boolean readOnly = true;
    /** Whether the device reads the file by direct I/O; a warning says where that was not had. */
    boolean directIo = true;
    /** Whether the device goes when its last opener has closed it. */
    boolean autoclear = true;
}
