//! EXT_CSD.
