/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.Severity;

/** One line of the doctor: what this machine allows. */
parcelable Finding {
    /** What it is about: `binder`, `mmc`, `loop` … */
    String topic;
    /** How bad. */
    Severity severity = Severity.UNKNOWN;
    /** What was found. */
    String text;
    /** What shows it. */
    String evidence;
    /** What to do; empty where nothing is to be done. */
    String remedy;
}
