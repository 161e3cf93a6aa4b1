/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** One MMC command, planned or sent. */
parcelable MmcCommand {
    /** Command index, e.g. 38 for CMD38 ERASE. */
    int index;
    /** Argument; the 32 bits of it as an unsigned number. */
    long argument;
    /** First word of the answer, unsigned; -1 while it has not been sent. */
    long response = -1;
}
