//! What each budget costs in time: the policy `budget` beside equal segments and √n, by simulation.
//!
//! `cargo bench --bench budgets` writes `benches/results/<date>-budgets-<model>.svg` and
//! `<date>-budgets.json`, without a GPU: the stages' bytes and operations are those of CUDA.
#![expect(clippy::print_stdout, reason = "a program that measures")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use trainer::memory::{
    CheckpointPlan, CheckpointingConfig, Schedule, SequentialConfig, Speed, TradeOff, simulate,
};
use trainer::plan::{Costs, Machine, Plan};
use trainer::report::{Chart, Curve, Shape};

const MODELS: [&str; 2] = ["densenet121", "resnet50"];
const BUDGETS: u64 = 120;
const MIB: f64 = (1_u64 << 20) as f64;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results");
    let date = std::env::args().nth(1).filter(|argument| argument.starts_with("20"));
    let date = date.unwrap_or_else(today);
    let mut cases = Vec::new();
    for model in MODELS {
        let path = format!("{}/benches/configs/{model}.toml", env!("CARGO_MANIFEST_DIR"));
        let loaded = trainer::config::load(path.as_ref(), &[])?;
        let plan = trainer::plan::plan(loaded.config).map_err(|fault| format!("{fault:?}"))?;
        let (chart, case) = compare(model, &plan)?;
        std::fs::write(folder.join(format!("{date}-budgets-{model}.svg")), chart.to_svg())?;
        cases.push(case);
    }
    let json = serde_json::to_string_pretty(&cases)?;
    std::fs::write(folder.join(format!("{date}-budgets.json")), json + "\n")?;
    Ok(())
}

fn today() -> String {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    date_of(seconds.map_or(0, |since| since.as_secs()))
}

/// The day that so many seconds after 1970 is in (Howard Hinnant, "chrono-compatible low-level date
/// algorithms").
fn date_of(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

/// The curves of a model, and the same as numbers.
fn compare(model: &str, plan: &Plan) -> Result<(Chart, serde_json::Value), Box<dyn Error>> {
    let precision = plan.memory.precision;
    let on = Machine::ASSUMED.target(precision, plan.memory.dense_layers());
    let batch = plan.train.batch_size;
    let Costs { names, stages, surroundings, .. } =
        plan.costs(&on, batch, plan.memory.offload_optimizer);
    let speed = Speed::of(&on);
    let run = |tree: &CheckpointPlan| {
        let schedule = Schedule::of_plan(tree, stages.len(), 1);
        let taken = simulate(&schedule, &stages, &surroundings, &speed);
        (taken.peak, taken.seconds)
    };
    let whole = run(&CheckpointPlan::keep_all(stages.len())).1;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let policy = |policy: CheckpointingConfig| {
        policy.checkpoint_plan(&names).ok().flatten().map(|t| run(&t))
    };
    let sequential = |segments| CheckpointingConfig::Sequential(SequentialConfig { segments });
    let segments: Vec<(u64, f64)> =
        (1..=stages.len()).filter_map(|segments| policy(sequential(segments))).collect();
    let sqrt = policy(CheckpointingConfig::Sqrt(Default::default()));
    let begin = Instant::now();
    let ways = TradeOff::new(&stages, &surroundings, &speed, 1);
    println!("{model}: {} stages, {:.1} ms", stages.len(), begin.elapsed().as_secs_f64() * 1e3);
    let (least, most) = (ways.least(), run(&CheckpointPlan::keep_all(stages.len())).0);
    let budgets = (0..=BUDGETS).map(|step| least + (most - least) * step / BUDGETS);
    let budgets: Vec<(u64, f64)> =
        budgets.filter_map(|budget| Some((budget, run(&ways.within(budget)?).1))).collect();
    let points = |found: &[(u64, f64)]| {
        let mut points: Vec<(f64, f64)> =
            found.iter().map(|(bytes, seconds)| (*bytes as f64 / MIB, seconds / whole)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    // The fastest of the segments within each budget.
    let best = |budget: u64| {
        let fit = segments.iter().filter(|(peak, _)| *peak <= budget);
        fit.map(|(_, seconds)| *seconds).min_by(f64::total_cmp)
    };
    let steps: Vec<(u64, f64)> =
        budgets.iter().filter_map(|(budget, _)| Some((*budget, best(*budget)?))).collect();
    let curve = |name: &str, shape: Shape, found: &[(u64, f64)]| {
        let points = points(found);
        // The least memory that it reaches, and what that costs.
        let figure = points.first().map(|(mib, time)| format!("{mib:.0} MiB, {time:.2}×"));
        Curve { name: name.to_owned(), figure: figure.unwrap_or_default(), shape, points }
    };
    let mut curves = vec![
        curve("budget", Shape::Steps, &budgets),
        curve("best sequential", Shape::Steps, &steps),
    ];
    curves.extend(sqrt.map(|sqrt| curve("sqrt", Shape::Dots, &[sqrt])));
    let title = format!("{model}, batch {batch}, {}: time within a budget", precision.name());
    let (x, y) = ("budget, MiB".to_owned(), "time, in parts of a step that keeps all".to_owned());
    let case = serde_json::json!({
        "case": model,
        "batch": batch,
        "precision": precision.name(),
        "command": "cargo bench --bench budgets",
        "budget": budgets.iter().map(|(b, s)| serde_json::json!({"bytes": b, "relative_time": s / whole})).collect::<Vec<_>>(),
        "sequential": segments.iter().enumerate().map(|(at, (p, s))| serde_json::json!({"segments": at + 1, "peak": p, "relative_time": s / whole})).collect::<Vec<_>>(),
        "sqrt": sqrt.map(|(p, s)| serde_json::json!({"peak": p, "relative_time": s / whole})),
    });
    Ok((Chart { title, x, y, from_zero: false, names: Vec::new(), curves }, case))
}
