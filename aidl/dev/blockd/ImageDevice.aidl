/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** A loop device in use. */
parcelable ImageDevice {
    /** Name from the request; the tag where the device is somebody else's. */
    String name;
    /** Path of the node. */
    String node;
    /** Loop device number. */
    int loopNumber;
    /** Path of the backing file as the kernel shows it. */
    String backingFile;
    /** First byte of the window in the backing file. */
    long offsetBytes;
    /** Size of the device in bytes. */
    long sizeBytes;
    /** Logical block size in bytes. */
    int blockSizeBytes;
    /** Whether writes are refused. */
    boolean readOnly;
    /** Whether the backing file is read by direct I/O. */
    boolean directIo;
    /** Whether the device goes with its last opener. */
    boolean autoclear;
    /** Whether blockd made it. */
    boolean ours;
}
