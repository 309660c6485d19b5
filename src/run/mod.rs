//! The loop: epochs, evaluation, early stopping, saving and resuming.
