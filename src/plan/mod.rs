//! From the configuration as written to one with nothing left to default and every check made.
