//! eMMC card model.
