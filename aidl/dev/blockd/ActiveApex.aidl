/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** An APEX that blockd has mounted. */
parcelable ActiveApex {
    /** Package name. */
    String name;
    /** Version. */
    long version;
    /** Where it is mounted, by name and version. */
    String mountPoint;
    /** Whether it is visible at its name, too; false where an activation was cut off. */
    boolean bound;
    /** Name of the mounted device: `loopN`, or that of a device of device-mapper. */
    String device;
    /** Whether every read is checked by dm-verity. */
    boolean verity;
    /** Whether dm-verity has found something wrong since the activation. */
    boolean corrupted;
}
