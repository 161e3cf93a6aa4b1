/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.MmcCommand;

/** One range of a plan and what becomes of its parts. All offsets are bytes from the disk's start. */
parcelable ResetTarget {
    /** GPT partition name. */
    String partition;
    /** Kernel name of the partition, e.g. `mmcblk0p3`. */
    String node;
    /** First byte of the range. */
    long startBytes;
    /** Length of the range in bytes. */
    long lengthBytes;
    /** Length in bytes of the ragged part before the first whole erase group. */
    long headBytes;
    /** Length in bytes of the part made of whole erase groups, or of all where groups do not matter. */
    long middleBytes;
    /** Length in bytes of the ragged part after the last whole erase group. */
    long tailBytes;
    /** Bytes of all parts that are overwritten, not erased. */
    long overwrittenBytes;
    /** Erase groups in the middle; 0 where the disk is no eMMC. */
    long eraseGroups;
    /** The commands, in their order, or the first and last 32 of more. */
    MmcCommand[] commands;
    /** How many commands are left out between those. */
    long omittedCommands;
    /** Longest time that the card may be busy with them, in milliseconds. */
    long limitMillis;
    /** CMD38s for the middle. */
    long eraseCommands;
    /** CMD38s that the kernel's BLKSECDISCARD would send for the middle; -1 = unknown. */
    long kernelEraseCommands = -1;
    /**
     * Time of ours in milliseconds, by a model fitted to one card of 2015 (26.5 ms a command, 31 µs
     * an erase group): an example, not a promise. -1 = no commands.
     */
    long modelMillis = -1;
    /** The same for the kernel's; -1 = unknown. */
    long kernelModelMillis = -1;
    /** Positions read back, besides the edges and the neighbours. */
    int samples;
}
