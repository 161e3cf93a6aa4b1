/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** What the card claims to have done to its physical blocks, the least over the range. */
@Backing(type="int")
enum Physical {
    /** No claim: erased logically or overwritten. */
    NONE = 0,
    /** CMD38 with the secure erase argument was accepted. */
    SECURE_ERASE = 1,
    /** Both passes of secure trim were accepted. */
    SECURE_TRIM = 2,
    /** SANITIZE was accepted. */
    SANITIZE = 3,
}
