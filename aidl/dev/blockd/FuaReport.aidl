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
    /** What the kernel was told to change for it, and what could not be. */
    String[] notes;
}
