/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.FuaRow;

/** What FUA costs. */
parcelable FuaReport {
    /** One row for each pattern and path. */
    FuaRow[] rows;
    /** Bytes that were overwritten. */
    long lengthBytes;
    /** The whole time, milliseconds. */
    long elapsedMillis;
    /** What the paths ask of this disk, and what the figures do not say. */
    String[] notes;
}
