//! The ljp format.
