/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** Something read from the device, and where; or why it could not be read. */
parcelable Fact {
    /** Name: JEDEC's, the kernel's or ours, in snake case. */
    String name;
    /** Whether it is known. */
    boolean known;
    /** The value, with its unit where it has one; empty where it is unknown. */
    String value;
    /** Where it was read, or, where it is unknown, why. */
    String source;
}
