/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.Fact;

/** What the planner knows of a disk. */
parcelable CardFacts {
    /** Kernel name of the disk. */
    String disk;
    /** Every fact, in the order in which they are worth reading. */
    Fact[] facts;
    /** The EXT_CSD register, 512 bytes; empty where it could not be read. */
    byte[] extCsd;
}
