//! Builds APEX-like archives for tests.
