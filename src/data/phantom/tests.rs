//! Tests of the phantom as a whole: what is on disk, and what the pictures give away.
use super::*;
