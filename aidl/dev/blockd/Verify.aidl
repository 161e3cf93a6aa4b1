/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** How much is read back after an erase. */
@Backing(type="int")
enum Verify {
    /** Up to 256 seeded samples, every border, every overwritten edge, the neighbouring sectors. */
    SAMPLES = 0,
    /** Every sector of the range. */
    FULL = 1,
}
