/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/**
 * What a reset is worth, in the words of NIST SP 800-88 and IEEE 2883. It is the minimum over all
 * parts of the range, and a mapping with caveats: what the card does inside cannot be seen.
 */
@Backing(type="int")
enum Assurance {
    /** No claim. As a request: any. */
    NONE = 0,
    /** The data cannot be read back through the device's interface. */
    CLEAR = 1,
    /** The card claims that the data is gone from its physical blocks too. */
    PURGE = 2,
}
