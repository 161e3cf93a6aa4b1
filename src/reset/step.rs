//! The steps of a reset, by the names that plans, progress, errors and reports use.

use crate::named_enum;

named_enum! {
    /// A step.
    Step {
        /// Reading what is known.
        Facts = 0 "facts",
        /// Deciding.
        Plan = 1 "plan",
        /// Opening every target exclusively.
        Claim = 2 "claim",
        /// Reading the facts again and comparing the plan.
        Recheck = 3 "recheck",
        /// Writing dirty pages and dropping the page caches before anything is erased.
        Flush = 4 "flush",
        /// Writing canaries at the sample positions.
        Canaries = 5 "canaries",
        /// Overwriting the ragged edges.
        Edges = 6 "edges",
        /// CMD35, CMD36, CMD38.
        Erase = 7 "erase",
        /// Flushing the card's own cache.
        CardCache = 8 "card-cache",
        /// Dropping the page caches after the erase.
        DropCaches = 9 "drop-caches",
        /// Reading back.
        Verify = 10 "verify",
        /// Removing the marker.
        Finish = 11 "finish",
    }
}
