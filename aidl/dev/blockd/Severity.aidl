/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** How bad a finding is. */
@Backing(type="int")
enum Severity {
    /** As it should be. */
    OK = 0,
    /** Works, but not fully. */
    WARNING = 1,
    /** Something cannot work. */
    PROBLEM = 2,
    /** Cannot be told here. */
    UNKNOWN = 3,
}
