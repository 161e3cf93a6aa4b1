/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.MmcCommand;

/** What was done to one range and what was found there after. */
parcelable TargetReport {
    /** GPT partition name. */
    String partition;
    /** First byte of the range, from the disk's start. */
    long startBytes;
    /** Bytes erased by commands. */
    long erasedBytes;
    /** Bytes overwritten, twice: ragged edges, or all by the method OVERWRITE. */
    long overwrittenBytes;
    /** The commands as sent, with the card's answers, or the first and last 32 of more. */
    MmcCommand[] commands;
    /** How many commands are left out between those. */
    long omittedCommands;
    /** CMD38s among all of them. */
    long eraseCommands;
    /** Time of the erase commands including their busy phases, or of overwriting, in microseconds. */
    long eraseMicros;
    /** Canaries written before the erase. */
    int canaries;
    /** Canaries still found after it; 0 or the reset has failed. */
    int canariesFound;
    /** Positions read back in the erased part. */
    int samples;
    /** Positions of those that are not the erased value; 0 or the reset has failed. */
    int samplesWrong;
    /** Neighbouring sectors compared with what they held before. */
    int neighbours;
    /** Neighbouring sectors that changed; 0 or the reset has failed. */
    int neighboursChanged;
    /**
     * Probability, 0 to 1, rounded down to 0.000001, that the samples find a card which silently
     * skips one erase group in a hundred.
     */
    double detectionProbability;
}
