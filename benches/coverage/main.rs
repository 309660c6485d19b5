//! How often 95% intervals hold the true value of what they are about, by simulation.
//!
//! `cargo bench --bench coverage` prints the tables of docs/evaluation.md; `-- --tables labels --sets 200` draws 200 data sets of
//! each kind for one of them. The draws are fixed, whatever the number of threads.
//!
//! - `auroc`: ways to the interval of a label's AUROC, and of the difference of two models.
//! - `grid`: DeLong's alone, on a grid of patients, share of positives, images of a patient and AUROC.
//! - `models`: the difference of two models whose AUROCs differ, or whose positives do not spread as negatives do. A kind's last two
//!   figures are how much they spread by the first model and by the second.
//! - `labels`: what an evaluation of five labels tells: AUROC, AUPRC and their means.
//! - `differences`: what a comparison of two models that are equally good tells of them.
//! - `numbers`: errors of a number.
//!
//! Scores are normal with variance 1; those of positives lie higher, so that the AUROC over images of
//! different patients is the one in the table. A patient has one to five images, which share a part of
//! their score (correlation 0.5) and, where patients are said to be ill, their truth too. The truth of
//! an image is else drawn by itself. The five labels of a mean share half of what a patient shares. A number is normal with
//! variance 1, its errors with a deviation of 0.6, or as many with Laplace's distribution.
#![expect(clippy::print_stdout, reason = "a program that measures")]

mod auroc;
mod kinds;
mod labels;
mod numbers;

use std::time::{Duration, Instant};

use clap::Parser;
use rayon::prelude::*;

use kinds::Kind;

const RESAMPLES: usize = 1000;
const CORRELATION: f64 = 0.5;

/// An interval's ends where there is one, and what it should hold.
type Found = (Option<(f64, f64)>, f64);

/// The intervals of the data set of this number.
type Draw = fn(&Kind, [u64; 2]) -> Vec<Found>;

#[derive(Parser)]
struct Asked {
    /// Which tables.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "auroc,grid,models,labels,differences,numbers"
    )]
    tables: Vec<String>,
    /// Data sets of each kind.
    #[arg(long, default_value_t = 4000)]
    sets: u64,
    /// Stop each table after so many seconds, with fewer data sets.
    #[arg(long)]
    seconds: Option<u64>,
    /// How many threads draw them; by default one for each processor.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<(), rayon::ThreadPoolBuildError> {
    let asked = Asked::parse();
    rayon::ThreadPoolBuilder::new().num_threads(asked.threads).build_global()?;
    for table in &asked.tables {
        let (kinds, names, draw): (_, Vec<&str>, Draw) = match table.as_str() {
            "auroc" => (kinds::some(), auroc::names(&auroc::METHODS), auroc::all),
            "grid" => (kinds::grid(), auroc::names(auroc::DELONG), auroc::delong_alone),
            "models" => {
                let names = auroc::names(auroc::DIFFERENCES);
                (kinds::of_two_models(), names, auroc::differences_alone)
            }
            "labels" => (kinds::of_labels(), labels::NAMES.to_vec(), labels::draw),
            "differences" => (kinds::of_labels(), labels::DIFFERENCES.to_vec(), labels::draw_two),
            "numbers" => (kinds::of_numbers(), numbers::NAMES.to_vec(), numbers::draw),
            other => {
                println!("no table is called {other}");
                continue;
            }
        };
        measure(&kinds, &names, draw, &asked);
    }
    Ok(())
}

/// Data sets between two looks at the clock.
const CHUNK: u64 = 50;

/// Prints the share of intervals that hold the truth. A data set without an interval counts as one whose interval does not;
/// how many have none is told in brackets.
fn measure(kinds: &[Kind], names: &[&str], draw: Draw, asked: &Asked) {
    let (started, mut sets) = (Instant::now(), 0);
    let mut counts = vec![vec![[0_u64; 2]; names.len()]; kinds.len()];
    let limit = asked.seconds.map(Duration::from_secs);
    while sets < asked.sets && limit.is_none_or(|limit| started.elapsed() < limit) {
        let chunk = sets..(sets + CHUNK).min(asked.sets);
        let places = (0..kinds.len()).flat_map(|kind| chunk.clone().map(move |set| (kind, set)));
        let places: Vec<(usize, u64)> = places.collect();
        let of_set = |&(kind, set): &(usize, u64)| (kind, draw(&kinds[kind], [kind as u64, set]));
        for (kind, found) in places.par_iter().map(of_set).collect::<Vec<_>>() {
            for ((range, truth), [held, none]) in found.into_iter().zip(&mut counts[kind]) {
                let holds = range.is_some_and(|(low, high)| low <= truth && truth <= high);
                *held += u64::from(holds);
                *none += u64::from(range.is_none());
            }
        }
        sets = chunk.end;
    }
    print(kinds, names, &counts, sets);
}

fn print(kinds: &[Kind], names: &[&str], counts: &[Vec<[u64; 2]>], sets: u64) {
    println!("{sets} data sets of each kind\n");
    println!("| data | {} |\n|---|{}", names.join(" | "), "--:|".repeat(names.len()));
    let share = |count: u64| 100.0 * count as f64 / sets as f64;
    let mut extremes = vec![[f64::INFINITY, f64::NEG_INFINITY]; names.len()];
    for (kind, counts) in kinds.iter().zip(counts) {
        for ([held, _], [least, most]) in counts.iter().zip(&mut extremes) {
            (*least, *most) = (least.min(share(*held)), most.max(share(*held)));
        }
        let shares = counts.iter().map(|&[held, none]| match none {
            0 => format!("{:.1}%", share(held)),
            _ => format!("{:.1}% (none {:.1}%)", share(held), share(none)),
        });
        println!("| {} | {} |", kind.name, shares.collect::<Vec<_>>().join(" | "));
    }
    let all = extremes.iter().map(|[least, most]| format!("{least:.1}% to {most:.1}%"));
    println!("| all | {} |\n", all.collect::<Vec<_>>().join(" | "));
}
