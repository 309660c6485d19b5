//! Trains image models that do not fit in GPU memory, from one TOML file.

pub mod cli;
pub mod config;
pub mod plan;
pub mod build;
pub mod run;
pub mod report;

pub mod data;
pub mod loss;
pub mod memory;
pub mod metric;
pub mod model;
pub mod optim;

pub mod choice;
pub mod random;
