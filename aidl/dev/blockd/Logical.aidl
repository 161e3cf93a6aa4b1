/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** What our own reading back found. */
@Backing(type="int")
enum Logical {
    /** Nothing was read back. */
    NOT_CHECKED = 0,
    /** Every position that was read is as it must be. */
    VERIFIED = 1,
    /** At least one position is not. */
    FAILED = 2,
}
