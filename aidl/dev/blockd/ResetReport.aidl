/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.Assurance;
import dev.blockd.ErrorCode;
import dev.blockd.Logical;
import dev.blockd.MmcCommand;
import dev.blockd.Physical;
import dev.blockd.ResetPlan;
import dev.blockd.StepTime;
import dev.blockd.TargetReport;

/** What a reset did and what it is worth: the erase certificate. */
parcelable ResetReport {
    /** Version of this format: 1. */
    int formatVersion = 1;
    /** Version of blockd. */
    String softwareVersion;
    /** Names this run; the argument of finish(). */
    String token;
    /** Start of the run, milliseconds since 1970-01-01 UTC by the device's clock. */
    long startedUnixMillis;
    /** Duration of the run in milliseconds. */
    long elapsedMillis;
    /** The plan that was carried out. */
    ResetPlan plan;
    /** One entry for each range of the plan, in its order. */
    TargetReport[] targets;
    /** SANITIZE as sent after the last range, and the card's answers; empty without it. */
    MmcCommand[] sanitizeCommands;
    /** What reading back found. */
    Logical logical = Logical.NOT_CHECKED;
    /** What the card claims. */
    Physical physical = Physical.NONE;
    /** What the reset is worth. */
    Assurance assurance = Assurance.NONE;
    /** True: the partitions are erased, not formatted; formatting is the caller's. */
    boolean formatNeeded = true;
    /** Time per step. */
    StepTime[] steps;
    /** What went otherwise than planned, without making the result less than reported. */
    String[] warnings;
    /** OK, or why the run is incomplete: then nothing in this report is a claim. */
    ErrorCode error = ErrorCode.OK;
    /** The failed step and the failure in words; empty where there is none. */
    String message;
}
