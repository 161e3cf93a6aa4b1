/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.Assurance;
import dev.blockd.Marker;
import dev.blockd.Method;
import dev.blockd.Verify;

/** What to erase, and how sure to be of it. */
parcelable ResetRequest {
    /** Kernel name of the disk, e.g. `mmcblk0`; null = wherever the partitions are. */
    @nullable String disk;
    /** GPT partition names, at least one. The one that holds keys (metadata) is erased first. */
    String[] partitions;
    /** First byte inside the partition, a multiple of 512. Only with a single partition. */
    long offsetBytes = 0;
    /** Bytes to erase, a multiple of 512; -1 = to the end. Only with a single partition. */
    long lengthBytes = -1;
    /** How. */
    Method method = Method.AUTO;
    /** The least assurance that is acceptable; below it nothing is touched. */
    Assurance minAssurance = Assurance.NONE;
    /** Largest range of one command sequence in bytes; 0 = no limit. */
    long maxChunkBytes = 0;
    /** How much is read back. */
    Verify verify = Verify.SAMPLES;
    /** Where the restart marker lies. */
    Marker marker = Marker.MISC;
    /** With Marker.FILE: the file, opened for reading and writing. */
    @nullable ParcelFileDescriptor markerFile;
    /**
     * The caller knows that no system update waits for its merge. Needed only where misc cannot be
     * read; where it says that one does, nothing overrides that.
     */
    boolean mergesDone = false;
    /** Send what the kernel's lists of faulty cards forbid. The card may not survive it. */
    boolean ignoreQuirks = false;
}
