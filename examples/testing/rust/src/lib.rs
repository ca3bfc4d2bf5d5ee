//! Nothing of its own: the suite is in `tests`.
