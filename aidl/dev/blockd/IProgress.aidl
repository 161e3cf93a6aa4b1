/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/**
 * Receives progress. Calls never delay the job: they go through a bounded queue, and of a client
 * that is stopped or gone nothing is waited for.
 */
oneway interface IProgress {
    /**
     * A step began or went on.
     *
     * @param step name of the step, as in the plan.
     * @param elapsedMillis milliseconds since the job started.
     * @param bytesDone bytes of this step that are done; -1 = unknown (a card tells nothing
     *         during one command).
     * @param bytesTotal bytes of this step; -1 = unknown.
     * @param limitMillis milliseconds that this step may take at most; -1 = no limit.
     */
    void onProgress(in String step, long elapsedMillis, long bytesDone, long bytesTotal,
            long limitMillis);
}
