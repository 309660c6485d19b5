//! Metrics of a head's predictions; one file each. Undefined is `None`, never a guess.
