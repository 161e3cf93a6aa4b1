/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** How a range is erased. A reset never uses a weaker method than the one it reports. */
@Backing(type="int")
enum Method {
    /** The strongest that the card offers. */
    AUTO = 0,
    /** CMD38 0x80000000 over whole erase groups. */
    SECURE_ERASE = 1,
    /** CMD38 0x80000001, then 0x80008000. */
    SECURE_TRIM = 2,
    /** CMD38 0x00000000 over whole erase groups. */
    ERASE = 3,
    /** CMD38 0x00000001. */
    TRIM = 4,
    /** Direct writes: a seeded pattern, then the erased value. */
    OVERWRITE = 5,
    /** BLKSECDISCARD, for disks that are not eMMC. */
    SECURE_DISCARD = 6,
    /** BLKDISCARD with full verification, for disks that are not eMMC. */
    DISCARD = 7,
}
