/*
 * Copyright (C) 2026 The blockd authors
 *
 * Licensed under the Apache License, Version 2.0; see the file LICENSE.
 */

package dev.blockd;

/** One APEX to verify, attach and mount. */
parcelable ActivateRequest {
    /** The APEX file, opened for reading: regular, or a block device that ends where the archive does. */
    ParcelFileDescriptor file;
    /** Name of the APEX; must equal its manifest's. */
    String name;
    /**
     * The public key that the caller trusts, as in `apex_pubkey`. Empty = none: the file must be
     * signed by the key inside it, and a warning says that nobody vouches for that.
     */
    byte[] trustedKey;
    /**
     * A regular file that a hash tree is built into where the payload does not bring one, opened
     * for reading and writing; it is overwritten. Its root is compared with the signed one.
     */
    @nullable ParcelFileDescriptor hashTree;
    /** Whether every read is checked by dm-verity; a warning says where it is not. */
    boolean verity = true;
}
