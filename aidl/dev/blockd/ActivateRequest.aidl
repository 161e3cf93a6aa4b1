/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** One APEX to verify, attach and mount. Not supported in this version. */
parcelable ActivateRequest {
    /** The APEX file, opened for reading. */
    ParcelFileDescriptor file;
    /** Name of the APEX; must equal its manifest's. */
    String name;
    /** The public key that the caller trusts, as in `apex_pubkey`; empty = none. */
    byte[] trustedKey;
    /** A file that a missing hash tree is built into, opened for reading and writing. */
    @nullable ParcelFileDescriptor hashTree;
    /** Whether the payload goes through dm-verity. */
    boolean verity = true;
}
