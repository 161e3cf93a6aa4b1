/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.Assurance;
import dev.blockd.Marker;
import dev.blockd.Method;
import dev.blockd.Physical;
import dev.blockd.ResetTarget;
import dev.blockd.Verify;

/** Everything that a reset would do, decided before anything is touched. */
parcelable ResetPlan {
    /** Kernel name of the disk. */
    String disk;
    /** Product name of the card (CID PNM). */
    String cardName;
    /** Card identification register, 32 hexadecimal digits; empty where it is unknown. */
    String cid;
    /** The method that will be used; never AUTO. */
    Method method = Method.AUTO;
    /** What the card will claim. */
    Physical physical = Physical.NONE;
    /** What the reset will be worth if it verifies. */
    Assurance assurance = Assurance.NONE;
    /** Erase group in bytes. */
    long eraseGroupBytes;
    /** Value of every byte after an erase, 0 or 255. */
    int erasedValue;
    /** How much is read back. */
    Verify verify = Verify.SAMPLES;
    /** Where the restart marker lies. */
    Marker marker = Marker.MISC;
    /** Which attempt this is, by the marker, counted from 1. */
    int attempt;
    /** Whether SANITIZE follows the last range. */
    boolean sanitize;
    /** Largest range of one command sequence in bytes; 0 = no limit. */
    long maxChunkBytes;
    /** The ranges, in the order in which they are erased. */
    ResetTarget[] targets;
    /** The steps in their order, in words. */
    String[] steps;
    /** What the reader must know: caveats of the assurance, missing marker and so on. */
    String[] notes;
}
