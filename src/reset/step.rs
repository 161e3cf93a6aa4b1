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
        /// Writing the restart marker and reading it back.
        Marker = 5 "marker",
        /// Writing canaries at the sample positions. From here on data is lost.
        Canaries = 6 "canaries",
        /// Erasing or overwriting the ragged edges.
        Edges = 7 "edges",
        /// Erasing the rest.
        Erase = 8 "erase",
        /// SANITIZE.
        Sanitize = 9 "sanitize",
        /// Flushing the card's own cache.
        CardCache = 10 "card-cache",
        /// Dropping the page caches after the erase.
        DropCaches = 11 "drop-caches",
        /// Reading back.
        Verify = 12 "verify",
        /// Removing the marker.
        Finish = 13 "finish",
    }
}
