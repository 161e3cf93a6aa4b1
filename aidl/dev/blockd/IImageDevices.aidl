/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

import dev.blockd.ActivateRequest;
import dev.blockd.ActivateResult;
import dev.blockd.ActiveApex;
import dev.blockd.AttachRequest;
import dev.blockd.AttachResult;
import dev.blockd.ImageDevice;

/**
 * Makes block devices of APEX payloads and other images.
 *
 * Registered as `dev.blockd.IImageDevices/default`. Callers: uid 0 and 1000 in the domains of
 * apexd-like and vold-like clients. Errors: EX_SECURITY for everybody else.
 */
interface IImageDevices {
    /** Most items of one call: the frames of rsbinder's sockets carry 64 descriptors. */
    const int MAX_ITEMS = 32;

    /**
     * Attaches each file to a loop device, in parallel, block size and all in one step.
     *
     * Errors: INVALID_REQUEST for more than MAX_ITEMS items. A failing item has its error in its
     * own result.
     *
     * @return one result for each request, in its order.
     */
    AttachResult[] attachAll(in AttachRequest[] requests);

    /**
     * Verifies each APEX, attaches it below dm-verity, mounts it read-only at `ROOT/NAME@VERSION`
     * and shows it at `ROOT/NAME`, in parallel. ROOT is `/apex` unless blockd was told otherwise.
     *
     * Errors: INVALID_REQUEST for more than MAX_ITEMS items. A failing item has its error in its
     * own result and leaves nothing behind: BAD_SIGNATURE for whatever is not as signed, IN_USE
     * where one of the name is mounted, PERMISSION where blockd's domain may not mount (AOSP's
     * policy lets apexd alone: it calls the same code as a library).
     *
     * @return one result for each request, in its order.
     */
    ActivateResult[] activateAll(in ActivateRequest[] requests);

    /**
     * Detaches a device that blockd made.
     *
     * Errors: NO_SUCH_DEVICE; PERMISSION for a device of somebody else; IN_USE where it is open
     * elsewhere and will go with its last opener.
     */
    void detach(int loopNumber);

    /**
     * Unmounts an APEX that blockd has activated, all versions of it, and removes its devices.
     *
     * Errors: NO_SUCH_DEVICE where there is none; IN_USE where it is in use and stays as it was.
     */
    void deactivate(in String name);

    /** Every APEX that blockd has mounted, this process or an earlier one. */
    ActiveApex[] listActive();

    /** Every loop device in use; `ours` tells those that blockd has made. */
    ImageDevice[] list();
}
