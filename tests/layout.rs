//! Protects the arrows between modules: what may import what.
//!
//! `cli` may import everything; along the pipeline config → plan → build → run → report a module
//! imports what it is given and what it hands on to; families import families only.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Plain tools of the whole crate, each with those of them that it uses.
const GROUND: [(&str, &[&str]); 9] = [
    ("choice", &[]),
    ("contain", &[]),
    ("disk", &["random"]),
    ("fault", &[]),
    ("paths", &["screen"]),
    ("priority", &[]),
    ("random", &[]),
    ("screen", &[]),
    ("wave", &[]),
];

/// One idea of the domain each; they know nothing of how a run is put together.
const FAMILIES: [&str; 10] =
    ["data", "evaluate", "loss", "memory", "metric", "model", "ops", "optim", "parallel", "train"];

/// Each module of the pipeline and the ones it may import besides families and ground.
///
/// Nothing after `plan` sees a configuration as written, where things are still left to default.
const PIPELINE: [(&str, &[&str]); 8] = [
    ("cli", &["config", "plan", "build", "run", "report", "sweep"]),
    ("config", &[]),
    ("plan", &["config"]),
    ("build", &["plan", "run", "report"]),
    ("run", &["plan", "report"]),
    ("report", &[]),
    // It starts the program anew for each configuration.
    ("sweep", &["config", "plan", "build", "run", "report"]),
    // It is of the tests alone.
    ("torture", &["cli", "run"]),
];

/// Modules in which no device may be opened, so nothing of Burn.
const PURE: [&str; 2] = ["config", "plan"];

/// What `plan`, which is given all that it needs to know of the machine, must not ask.
const ASKED: [&str; 4] = ["std::env", "std::fs", "available_parallelism", "SystemTime"];

#[test]
fn every_import_follows_the_arrows() {
    let files = sources();
    assert!(files.len() > 20, "only {} files were found", files.len());
    let faults: Vec<String> = files.iter().flat_map(|(path, text)| faults(path, text)).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_module_has_its_place_in_the_layout() {
    for (path, text) in sources() {
        if path == Path::new("lib.rs") {
            let modules = text
                .lines()
                .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod "));
            for module in modules.map(|rest| rest.trim_end_matches(';')) {
                assert!(arrows(module).is_some(), "`{module}` has no rule in tests/layout.rs");
            }
        }
    }
}

#[test]
fn the_program_itself_is_short_and_no_file_is_a_drawer_for_everything() {
    for (path, text) in sources() {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let drawer = ["utils", "util", "common", "helpers", "misc"].contains(&name);
        assert!(!drawer, "name `{}` after the one idea in it", path.display());
        if path == Path::new("main.rs") {
            assert!(text.lines().count() < 60, "main.rs parses, calls and prints; nothing else");
        }
    }
}

/// On CUDA they take a hundred times longer than ours; `ops` calls them where there are no others.
#[test]
fn burns_own_convolutions_and_products_are_called_where_there_are_no_others() {
    let slow = ["conv1d(", "conv2d(", "conv3d(", "conv_transpose2d(", "matmul("];
    let calls = |code: &str, name: &str| {
        code.match_indices(name).any(|(at, _)| {
            let before = &code[..at];
            starts_a_path(code, at) && !before.ends_with("fn ")
        })
    };
    let code = |text: &str| {
        let code = without_comments(text);
        code.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
    };
    let sources = sources().into_iter().map(|(path, text)| (path, code(&text)));
    let callers = sources.filter(|(_, code)| slow.iter().any(|name| calls(code, name)));
    let callers: Vec<PathBuf> = callers.map(|(path, _)| path).collect();
    assert_eq!(callers, [Path::new("ops/matmul.rs")]);
}

/// Steps are tried on it where there is no card.
#[test]
fn the_driver_that_computes_nothing_compiles() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/stub_cuda.c");
    let compiled = Command::new("cc").args(["-fsyntax-only", "-std=gnu11"]).arg(file).output();
    let compiled = compiled.expect("Rust links by `cc`");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

/// Clippy sees that each has its reason.
#[test]
fn every_unsafe_block_is_counted_in_the_security_page() {
    let blocks = |text: &str| {
        let code = without_comments(text.split("#[cfg(test)]").next().unwrap_or_default());
        ["unsafe {", "unsafe impl"].iter().map(|words| code.matches(words).count()).sum::<usize>()
    };
    let of = |folder: &'static str| {
        let counts = sources_of(folder).into_iter().map(|(path, text)| (path, blocks(&text)));
        let some = counts.filter(|(_, count)| *count > 0);
        some.map(move |(path, count)| format!("| `{folder}/{}` | {count} |", path.display()))
            .collect::<Vec<_>>()
    };
    let counted = ["cpu/src", "src"].map(of).concat();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("SECURITY.md"));
    let page = page.expect("SECURITY.md is there");
    let rows =
        page.lines().filter(|line| line.starts_with("| `src/") || line.starts_with("| `cpu/"));
    let told: Vec<String> =
        rows.filter_map(|line| line.rsplit_once("| ").map(|(row, _)| format!("{row}|"))).collect();
    assert_eq!(told, counted, "the table of SECURITY.md");
}

/// What `module` may import; `None` for a module with no place in the layout.
fn arrows(module: &str) -> Option<Vec<&'static str>> {
    if let Some((_, others)) = GROUND.iter().find(|(name, _)| *name == module) {
        return Some(others.to_vec());
    }
    let beyond: &[&str] = match PIPELINE.iter().find(|(name, _)| *name == module) {
        Some((_, beyond)) => beyond,
        None if FAMILIES.contains(&module) => &[],
        None => return None,
    };
    let ground = GROUND.map(|(name, _)| name);
    Some([&FAMILIES[..], &ground[..], beyond].concat())
}

/// What is wrong with the imports of the file at `path`, a path below `src`.
fn faults(path: &Path, text: &str) -> Vec<String> {
    let module = module_of(path);
    let shown = Path::new("src").join(path);
    if module == "main" {
        return Vec::new();
    }
    let Some(allowed) = arrows(&module).or_else(|| (module == "lib").then(Vec::new)) else {
        return vec![format!("{}: no rule for `{module}` in tests/layout.rs", shown.display())];
    };
    let code = without_comments(text);
    let crossing = imports(&code, depth_of(path)).into_iter().filter(|(_, imported)| {
        *imported != module && !allowed.contains(&imported.as_str()) && arrows(imported).is_some()
    });
    let mut faults: Vec<String> = crossing
        .map(|(line, imported)| {
            format!("{}:{line}: `{module}` must not import `{imported}`", shown.display())
        })
        .collect();
    if module == "plan" && !path.ends_with("tests.rs") {
        let code = code.split("mod tests {").next().unwrap_or_default();
        let asked = ASKED.into_iter().filter(|asked| code.contains(asked));
        faults
            .extend(asked.map(|asked| format!("{}: `plan` must not ask {asked}", shown.display())));
    }
    if PURE.contains(&module.as_str()) {
        let burn = code.lines().enumerate().filter(|(_, line)| {
            line.match_indices("burn::").any(|(at, _)| starts_a_path(line, at))
        });
        faults.extend(burn.map(|(index, _)| {
            format!("{}:{}: `{module}` must not use Burn", shown.display(), index + 1)
        }));
    }
    faults
}

/// The line and the top-level module of every path into the crate: `crate::…`, `crate::{…}`, and
/// `super::…` where it leads out of the file's own top-level module.
fn imports(code: &str, depth: usize) -> Vec<(usize, String)> {
    let line_of = |at: usize| code[..at].matches('\n').count() + 1;
    let mut found = Vec::new();
    for (at, root) in code.match_indices("crate::") {
        if starts_a_path(code, at) {
            let names = first_segments(&code[at + root.len()..]);
            found.extend(names.into_iter().map(|name| (line_of(at), name)));
        }
    }
    let climb = "super::".repeat(depth);
    for (at, _) in code.match_indices(&climb) {
        // Indented, it may stand in an inline module and lead less far.
        let line = &code[code[..at].rfind('\n').map_or(0, |end| end + 1)..];
        let rest = &code[at + climb.len()..];
        if !line.starts_with(' ') && starts_a_path(code, at) && !rest.starts_with("super::") {
            found.extend(first_segments(rest).into_iter().map(|name| (line_of(at), name)));
        }
    }
    found
}

fn starts_a_path(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    before.is_none_or(|before| !before.is_alphanumeric() && before != '_' && before != ':')
}

/// `a` for `a::b`, and `a`, `c` for `{a::{b, d}, c}`.
fn first_segments(path: &str) -> Vec<String> {
    let Some(group) = path.strip_prefix('{') else {
        return vec![identifier(path)];
    };
    let mut names = vec![identifier(group)];
    let mut open = 1;
    for (at, sign) in group.char_indices() {
        match sign {
            '{' => open += 1,
            '}' => open -= 1,
            ',' if open == 1 => names.push(identifier(&group[at + 1..])),
            _ => {}
        }
        if open == 0 {
            break;
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

fn identifier(text: &str) -> String {
    text.trim_start().chars().take_while(|sign| sign.is_alphanumeric() || *sign == '_').collect()
}

/// The same lines without what follows `//`.
fn without_comments(text: &str) -> String {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.collect::<Vec<_>>().join("\n")
}

/// `run` for `run/epoch.rs`, `run/mod.rs` and `run.rs`.
fn module_of(path: &Path) -> String {
    let first = path.iter().next().map(Path::new).unwrap_or(path);
    first.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// How many modules lie between the crate's root and the file, itself included.
fn depth_of(path: &Path) -> usize {
    path.iter().count() - usize::from(path.ends_with("mod.rs"))
}

fn sources() -> BTreeMap<PathBuf, String> {
    sources_of("src")
}

/// The source files below a folder of the repository, by their paths in it.
fn sources_of(folder: &str) -> BTreeMap<PathBuf, String> {
    fn collect(folder: &Path, root: &Path, into: &mut BTreeMap<PathBuf, String>) {
        for entry in fs::read_dir(folder).expect("src is readable") {
            let path = entry.expect("src is readable").path();
            if path.is_dir() {
                collect(&path, root, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file is text");
                into.insert(path.strip_prefix(root).expect("lies in src").to_owned(), text);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files = BTreeMap::new();
    collect(&root, &root, &mut files);
    files
}

#[test]
fn the_checker_sees_a_wrong_arrow_however_it_is_written() {
    let wrong = [
        ("model/densenet.rs", "use crate::plan::Plan;"),
        ("model/densenet.rs", "use crate::{loss::Loss, run};"),
        ("model/densenet.rs", "use crate::{\n    loss::{self, Loss},\n    plan::Plan,\n};"),
        ("model/mod.rs", "fn f() {\n    crate::build::resolve_device(\"cpu\");\n}"),
        ("model/densenet.rs", "use super::super::report::Event;"),
        ("model/mod.rs", "use super::config::Config;"),
        ("report/jsonl.rs", "use crate::run::Run;"),
        ("run/epoch.rs", "use crate::config::Config;"),
        ("run/epoch.rs", "use crate::build::describe;"),
        ("build/device.rs", "use crate::config::DeviceConfig;"),
        ("config/load.rs", "use crate::plan::Plan;"),
        ("plan/mod.rs", "use burn::tensor::Device;"),
        ("random.rs", "use crate::data::Batch;"),
        ("elsewhere/mod.rs", ""),
    ];
    for (path, line) in wrong {
        assert_eq!(faults(Path::new(path), line).len(), 1, "{path}: {line}");
    }
    assert_eq!(
        faults(Path::new("model/densenet.rs"), "//! A model.\n\nuse crate::plan::Plan;"),
        ["src/model/densenet.rs:3: `model` must not import `plan`"]
    );
}

#[test]
fn the_checker_lets_right_arrows_pass() {
    let right = [
        ("model/densenet.rs", "use crate::memory::{Stage, StageSpec};"),
        ("model/densenet.rs", "use super::config::DensenetConfig;"),
        ("model/densenet.rs", "// use crate::plan::Plan;\n/// Like [`crate::plan`]."),
        ("model/mod.rs", "mod tests {\n    use super::config::ModelConfig;\n}"),
        ("config/types.rs", "use crate::choice::Choice;\nuse crate::data::DataConfig;"),
        ("plan/mod.rs", "use crate::config::{Config, Mode};"),
        ("build/mod.rs", "use crate::{plan::Plan, run::Run};"),
        ("run/epoch.rs", "use crate::report::Event;\nuse super::state::State;"),
        ("cli/run.rs", "use crate::{build, config, plan};"),
        ("data/mod.rs", "use other_crate::plan::Plan;\nuse burn::tensor::Tensor;"),
    ];
    for (path, line) in right {
        assert_eq!(faults(Path::new(path), line), [""; 0], "{path}: {line}");
    }
}
