/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.Fact;

/** What is known of a disk's volatile cache. */
parcelable CacheFacts {
    /** Kernel name of the disk. */
    String disk;
    /** Every fact. */
    Fact[] facts;
    /** The verdict: `safe`, `safe but slow`, `data at risk`, `cannot tell`. */
    String verdict;
    /** Why, in sentences; what would tell, where it cannot be told. */
    String[] reasons;
}
