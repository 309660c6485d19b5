//! A rank that fails, is stopped or does not fit ends all, with one clear message, and nothing is lost.

use super::*;

/// Kills in one test run; `TRAINER_TEST_RANK_KILLS` asks for more.
const KILLS: usize = 10;
/// All end within this time.
const LIMIT: Duration = Duration::from_secs(60);

const SIGKILL: i32 = 9;
const SIGSTOP: i32 = 19;
const SIGCONT: i32 = 18;

/// Such as `rank 2 of 3 (process 71 on host)`.
fn named(told: &str, rank: usize, world: usize) -> bool {
    told.contains(&format!("rank {rank} of {world} (process "))
}

#[test]
fn a_run_whose_ranks_are_killed_again_and_again_ends_as_one_never_killed() {
    let asked = std::env::var("TRAINER_TEST_RANK_KILLS").ok();
    kill_again_and_again(&[], asked.map_or(KILLS, |asked| asked.parse().expect("a number")));
}

/// What is saved is put together from all ranks.
#[test]
fn a_run_with_shards_whose_ranks_are_killed_ends_as_one_never_killed() {
    kill_again_and_again(&SHARDED, KILLS / 3);
}

/// Kills ranks of a run with `more` options `most` times.
fn kill_again_and_again(more: &[&str], most: usize) {
    const WORLD: usize = 3;
    let folder = tempfile::tempdir().expect("a folder");
    let whole = place(folder.path(), "whole");
    let begin = Instant::now();
    Started::new(By::OpenMpi, WORLD, &whole, more, &[]).succeed();
    let length = begin.elapsed();
    let expected = Result::of(&run_of(&whole));
    let config = place(folder.path(), "killed");
    let run = run_of(&config);
    let mut random = trainer::random::stream(12, "kills of ranks", &[]);
    let (mut kills, mut joined_kills) = (0, 0);
    for attempt in 0.. {
        assert!(attempt < 20 * most, "{kills} kills only");
        let resume: &[&str] = if run.exists() { &["--resume"] } else { &[] };
        let set = [("TRAINER_JOIN_SECONDS", "10")];
        let options = [more, resume].concat();
        let mut started = Started::new(By::OpenMpi, WORLD, &config, &options, &set);
        if kills == most {
            started.succeed();
            break;
        }
        let killed = random.random_range(0..WORLD);
        let part = random.random_range(0.1..0.9);
        std::thread::sleep(Duration::from_secs_f64(length.as_secs_f64() * part));
        if (0..WORLD).any(|rank| started.has_ended(rank)) {
            // It was faster: begin again from nothing.
            started.succeed();
            Result::of(&run).assert_equals(&expected, &format!("after {kills} kills"));
            std::fs::remove_dir_all(&run).expect("is removed");
            continue;
        }
        started.kill(killed, SIGKILL);
        let all = started.end(LIMIT);
        if all.iter().enumerate().any(|(rank, ended)| rank != killed && ended.status.success()) {
            // Everything was done.
            Result::of(&run).assert_equals(&expected, &format!("after {kills} kills"));
            std::fs::remove_dir_all(&run).expect("is removed");
            continue;
        }
        kills += 1;
        for (rank, ended) in all.iter().enumerate().filter(|(rank, _)| *rank != killed) {
            assert_eq!(ended.status.code(), Some(1), "rank {rank}: {ended:?}");
            let first = ended.told.lines().find(|line| line.contains("error: "));
            let first = first.unwrap_or_default();
            let joined = named(first, killed, WORLD) && first.contains("has ended without a word");
            let before = first.contains("did not connect") || first.contains("ended before all");
            assert!(joined || before, "rank {killed} killed, rank {rank} says {}", ended.told);
            joined_kills += usize::from(joined);
        }
    }
    // Of each the other two tell.
    assert!(joined_kills > most, "{joined_kills} of {most}");
    Result::of(&run).assert_equals(&expected, "after all kills");
}

#[test]
fn a_rank_that_stands_still_ends_all_and_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    for (stopped, world) in [(1, 3), (0, 2)] {
        let config = place(folder.path(), &format!("stopped-{stopped}"));
        let more = ["--set", "train.epochs=1000"];
        let errors = folder.path().join(format!("errors-{stopped}"));
        let set = [
            ("TRAINER_SILENCE_SECONDS", "2"),
            ("TORCHELASTIC_ERROR_FILE", errors.to_str().expect("UTF-8")),
        ];
        let mut started = Started::new(By::Torchrun, world, &config, &more, &set);
        let saved = run_of(&config).join("last");
        let begin = Instant::now();
        while !saved.exists() {
            assert!(begin.elapsed() < LIMIT, "nothing is saved");
            std::thread::sleep(Duration::from_millis(2));
        }
        started.kill(stopped, SIGSTOP);
        for rank in (0..world).filter(|rank| *rank != stopped) {
            started.wait(rank, LIMIT);
        }
        assert!(!started.has_ended(stopped));
        // As torchrun reads it.
        let text = std::fs::read_to_string(&errors).expect("is written");
        let error: serde_json::Value = serde_json::from_str(&text).expect("is JSON");
        let message = error["message"]["message"].as_str().expect("a message");
        assert!(named(message, stopped, world) && message.contains("has sent nothing for 2 s"));
        let time = error["message"]["extraInfo"]["timestamp"].as_str().expect("a time");
        assert!(time.parse::<u64>().expect("seconds") > 1_600_000_000);
        started.kill(stopped, SIGCONT);
        for (rank, ended) in started.end(LIMIT).iter().enumerate() {
            assert_eq!(ended.status.code(), Some(1), "rank {rank}: {ended:?}");
            if rank != stopped {
                let told = &ended.told;
                assert!(
                    named(told, stopped, world) && told.contains("has sent nothing for"),
                    "{told}"
                );
            }
        }
    }
}

/// Starts two ranks, each with its own arguments and variables, which all end with `code`.
fn two(
    config: [&Path; 2],
    more: [&[&str]; 2],
    set: [&[(&str, &str)]; 2],
    code: [i32; 2],
) -> [String; 2] {
    let port = free_port();
    let start = |rank: usize| {
        let mut command = trainer(config[rank], more[rank]);
        command.envs(variables(By::OpenMpi, rank, 2, port)).envs(set[rank].iter().copied());
        command.spawn().expect("starts")
    };
    let all = Started(vec![start(0), start(1)]).end(LIMIT);
    assert_eq!([0, 1].map(|rank| all[rank].status.code()), code.map(Some), "{all:?}");
    [0, 1].map(|rank| all[rank].told.clone())
}

#[test]
fn ranks_that_do_not_fit_together_are_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = place(folder.path(), "unlike");
    let both = [config.as_path(); 2];
    let limit = ("TRAINER_JOIN_SECONDS", "3");
    let secrets: [&[(&str, &str)]; 2] =
        [&[("TRAINER_SECRET", "a"), limit], &[("TRAINER_SECRET", "b"), limit]];
    let told = two(both, [&[], &[]], secrets, [1, 2]);
    assert!(told[0].contains("another secret (TRAINER_SECRET)"), "{}", told[0]);
    assert!(told[1].contains("rank 1: error: rank 1 and rank 0"), "{}", told[1]);
    // The same run with another seed.
    let told = two(both, [&[], &["--set", "run.seed=4"]], [&[], &[]], [2, 2]);
    assert!(told[0].contains("different configurations:\n  run.seed was 3, is 4"), "{}", told[0]);
    // A data set that one of them does not see, and what both do wrong.
    let elsewhere = place(folder.path(), "elsewhere");
    let gone = elsewhere.with_file_name("gone.toml");
    let told = two([&config, &gone], [&[], &[]], [&[], &[]], [2, 2]);
    assert!(named(&told[0], 1, 2) && told[0].contains("has failed: "), "{}", told[0]);
    assert!(told[1].lines().all(|line| line.starts_with("rank 1: ")), "{}", told[1]);
    let wrong: &[&str] = &["--set", "train.epohcs=4"];
    let told = two(both, [wrong, wrong], [&[], &[]], [2, 2]);
    assert!(told[0].contains("epohcs") && told[1].is_empty(), "{told:?}");
    assert!(!run_of(&config).exists());
}

#[test]
fn a_port_in_use_a_rank_that_does_not_come_and_cards_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = place(folder.path(), "alone");
    let listener = TcpListener::bind("127.0.0.1:0").expect("is free");
    let port = listener.local_addr().expect("is known").port();
    let one = |rank: usize, port: u16, more: &[&str]| {
        let mut command = trainer(&config, more);
        command.envs(variables(By::Slurm, rank, 2, port)).env("TRAINER_JOIN_SECONDS", "1");
        let output = command.output().expect("starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, told) = one(0, port, &[]);
    assert_eq!(code, Some(1));
    assert!(told.contains(&format!("rank 0 cannot listen at port {port}")), "{told}");
    drop(listener);
    let (code, told) = one(0, free_port(), &[]);
    assert_eq!(code, Some(1));
    assert!(told.contains("error: rank 1 of 2 did not connect within 1 s"), "{told}");
    let (code, told) = one(1, free_port(), &[]);
    assert_eq!(code, Some(1));
    assert!(told.starts_with("rank 1: error: rank 1 has not reached rank 0 at"), "{told}");
    // Devices and processes that do not go together.
    for (device, expected) in [
        // A card that there is nowhere.
        ("cuda:99", "the device `cuda:99` cannot be used"),
        ("cpu:0,cpu:1,cpu:2", "names 3 devices, and 2 processes were started"),
        ("gpu", "unknown device \"gpu\""),
    ] {
        let more: &[&str] = &["--device", device];
        let told = two([&config; 2], [more, more], [&[], &[]], [2, 2]);
        assert!(told[0].contains(expected), "{}", told[0]);
    }
}
