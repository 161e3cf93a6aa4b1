/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** Where the marker lies that makes the next recovery boot finish an interrupted reset. */
@Backing(type="int")
enum Marker {
    /** The bootloader message in the misc partition. */
    MISC = 0,
    /** A file that the caller passes. */
    FILE = 1,
    /** Nowhere: an interrupted reset is not resumed. Must be asked for, and is printed. */
    NONE = 2,
}
