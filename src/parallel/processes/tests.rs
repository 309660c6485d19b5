//! Processes that are threads here, and exchange over TCP as others do.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor};

use super::*;
use crate::memory::OutOfMemory;
use crate::parallel::{Failure, GridExchanges, Member, on_ranks};

/// A port that nobody has.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is one");
    listener.local_addr().expect("it is known").port()
}

fn launch(rank: usize, world: usize, port: u16, more: &[(&str, &str)]) -> Launch {
    let (rank, world, port) = (rank.to_string(), world.to_string(), port.to_string());
    let all = [
        ("RANK", rank.as_str()),
        ("WORLD_SIZE", &world),
        ("LOCAL_RANK", &rank),
        ("LOCAL_WORLD_SIZE", &world),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", &port),
        ("TRAINER_JOIN_SECONDS", "20"),
    ];
    let named = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let variables: Variables = all.into_iter().chain(more.iter().copied()).map(named).collect();
    Launch::find(&variables).expect("is consistent").expect("there are others")
}

/// What `work` gives in each of the processes, in the order of their ranks.
fn in_processes<T: Send>(ranks: usize, work: impl Fn(&Processes) -> T + Sync) -> Vec<T> {
    let port = free_port();
    let one = |rank: usize| {
        let processes = Processes::join(&launch(rank, ranks, port, &[]), "1").expect("joins");
        let done = work(&processes);
        processes.leave(true);
        done
    };
    let one = &one;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || one(rank))).collect();
        threads.into_iter().map(|thread| thread.join().expect("ends")).collect()
    })
}

/// Why processes, each joining with its own launch and version, do not find each other.
fn join_errors(launches: Vec<(Launch, &'static str)>) -> Vec<String> {
    thread::scope(|scope| {
        let join = |(launch, version): (Launch, &'static str)| {
            scope.spawn(move || Processes::join(&launch, version).map(drop).expect_err("fails"))
        };
        let launches = launches.into_iter();
        let threads: Vec<_> = launches.map(join).collect();
        threads.into_iter().map(|thread| thread.join().expect("ends").to_string()).collect()
    })
}

#[test]
fn every_rank_gets_what_all_bring_in_the_order_of_the_ranks() {
    for ranks in 2..5 {
        let found = in_processes(ranks, |processes| {
            let own = |turn: usize| vec![processes.rank() as u8; turn % 7];
            let all = |turn: usize| processes.gather("value", &own(turn)).expect("all bring it");
            let shared =
                processes.share("word", processes.is_first().then(|| vec![7])).expect("is sent");
            assert_eq!(shared, [7]);
            processes.agree("numbers", &[3]).expect("all have the same");
            (0..50).map(all).collect::<Vec<_>>()
        });
        for (turn, all) in (0..50).map(|turn| (turn, &found[0][turn])) {
            let expected: Vec<Vec<u8>> =
                (0..ranks).map(|rank| vec![rank as u8; turn % 7]).collect();
            assert_eq!(*all, expected);
        }
        assert!(found.iter().all(|other| *other == found[0]));
    }
}

/// More than what lies between two processes on its way: who sent it all first and read then would wait for
/// ever.
#[test]
fn much_is_exchanged_at_once() {
    let bytes = 32 << 20;
    let found = in_processes(3, |processes| {
        let own = vec![processes.rank() as u8 + 1; bytes];
        let all = processes.gather("much", &own).expect("all bring it");
        all.iter().map(|bytes| (bytes.len(), bytes[bytes.len() - 1])).collect::<Vec<_>>()
    });
    assert!(found.iter().all(|all| *all == [(bytes, 1), (bytes, 2), (bytes, 3)]));
}

fn tensor(values: &[f32]) -> Tensor<1> {
    Tensor::from_data(values, &Device::flex())
}

fn bits(tensor: Tensor<1>) -> Vec<u32> {
    tensor.into_data().iter::<f32>().map(f32::to_bits).collect()
}

/// Sums that depend on the order in which they are taken; some ranks lack some names, and only the first two
/// have images of a norm.
fn sums(member: &Member) -> BTreeMap<(String, u32), Vec<u32>> {
    let rank = member.rank();
    let value =
        |at: usize| ((at * 7 + rank * 13) as f32 * 0.37).sin() * 10_f32.powi(rank as i32 - 2);
    let own = |length: usize| tensor(&(0..length).map(value).collect::<Vec<f32>>());
    let norm = (rank < 2).then(|| member.sum("norm", 2, own(5)));
    let names = [("a", 1000), ("b", 3), ("c", 1), ("zero", 2)];
    let named =
        names.into_iter().enumerate().filter(|(place, _)| !(place + rank).is_multiple_of(3));
    let named = named.map(|(_, (name, length))| ((name.to_owned(), 7), own(length)));
    let all = member.sum_all(named.collect()).into_iter();
    let norm = norm.map(|norm| (("norm".to_owned(), 0), norm));
    all.chain(norm).map(|(name, sum)| (name, bits(sum))).collect()
}

#[test]
fn sums_have_the_bits_of_as_many_devices_of_one_process() {
    let work = |member: &Member| Ok::<_, fmt::Error>(sums(member));
    for ranks in [2, 3, 4] {
        let threads =
            on_ranks(&mut vec![(); ranks], 1, None, GridExchanges::default(), |(), seat| {
                work(&seat.row)
            });
        let threads = threads.expect("all do it");
        let found = in_processes(ranks, |processes| {
            let done = processes.work(&mut (), &Device::flex(), None, |(), seat| work(&seat.row));
            done.expect("all do it")
        });
        assert_eq!(found, threads);
        assert_eq!(found[0].len(), 5);
    }
}

/// What came of the work of each rank, of which `failing` fails before a sum, and all do it once more.
fn failing_at(
    failing: usize,
    fail: impl Fn() -> Result<(), fmt::Error> + Sync,
) -> Vec<(String, Vec<u32>)> {
    in_processes(3, |processes| {
        let once = |fails: bool| {
            processes.work(&mut (), &Device::flex(), None, |(), seat| {
                let member = &seat.row;
                let first = member.sum("first", 3, tensor(&[1.0]));
                if fails && member.rank() == failing {
                    fail()?;
                }
                let second = member.sum("second", 3, first + 0.5);
                Ok::<_, fmt::Error>(bits(second))
            })
        };
        let told = match once(true).expect_err("one fails") {
            Failure::OutOfMemory(out_of_memory) => out_of_memory.to_string(),
            Failure::Error(_) => {
                processes.fail("no paper", 1);
                return ("own".to_owned(), Vec::new());
            }
            Failure::Elsewhere(elsewhere) => return (elsewhere.message, Vec::new()),
            Failure::Stalled(what) => what,
        };
        (told, once(false).unwrap_or_default())
    })
}

#[test]
fn where_one_rank_has_no_memory_all_hear_of_it_and_go_on() {
    for failing in 0..3 {
        let found = failing_at(failing, || OutOfMemory { wanted: Some(64) }.throw());
        let told = OutOfMemory { wanted: Some(64) }.to_string();
        assert!(found.iter().all(|(message, _)| *message == told), "{found:?}");
        let sum = vec![10.5_f32.to_bits()];
        assert!(found.iter().all(|(_, again)| *again == sum), "{found:?}");
    }
}

/// What cards have for each other comes before what processes tell each other after it.
#[test]
fn messages_for_cards_come_to_all_others_in_the_order_of_each_sender() {
    for ranks in [2, 4] {
        let found = in_processes(ranks, |processes| {
            let came: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
            let to = Arc::clone(&came);
            let deliver = move |message: &[u8]| to.lock().expect("is whole").push(message.into());
            processes.serve_card(deliver, || ());
            processes.gather("begin", &[]).expect("all come");
            (0..100).for_each(|turn| processes.carry(vec![processes.rank() as u8, turn]));
            processes.gather("end", &[]).expect("all come");
            let came = came.lock().expect("is whole");
            came.clone()
        });
        for (rank, came) in found.iter().enumerate() {
            assert_eq!(came.len(), 100 * (ranks - 1));
            for other in (0..ranks).filter(|other| *other != rank) {
                let turns = came.iter().filter(|message| usize::from(message[0]) == other);
                let turns: Vec<u8> = turns.map(|message| message[1]).collect();
                assert_eq!(turns, (0..100).collect::<Vec<_>>(), "rank {other} to rank {rank}");
            }
        }
    }
}

#[test]
fn a_card_is_kept_from_waiting_where_another_rank_has_failed_and_only_then() {
    for failing in [None, Some(0), Some(2)] {
        let stopped = in_processes(3, |processes| {
            let stops: Arc<Mutex<usize>> = Arc::default();
            let count = Arc::clone(&stops);
            processes.serve_card(|_| (), move || *count.lock().expect("is whole") += 1);
            // All serve their cards before one fails, as they do before they train.
            processes.gather("begin", &[]).expect("all come");
            let outcome = processes.work(&mut (), &Device::flex(), None, |(), seat| {
                if failing == Some(seat.row.rank()) {
                    OutOfMemory { wanted: None }.throw();
                }
                Ok::<_, fmt::Error>(())
            });
            assert_eq!(outcome.is_err(), failing.is_some());
            let stops = *stops.lock().expect("is whole");
            stops > 0
        });
        // Who fails itself stops its own card.
        for (rank, stopped) in stopped.iter().enumerate().filter(|(r, _)| failing != Some(*r)) {
            assert_eq!(*stopped, failing.is_some(), "rank {rank}, {failing:?} fails");
        }
    }
}

#[test]
fn the_error_of_one_rank_is_told_to_all() {
    for failing in 0..3 {
        let found = failing_at(failing, || Err(fmt::Error));
        for (rank, (message, _)) in found.iter().enumerate() {
            match rank == failing {
                true => assert_eq!(message, "own"),
                false => {
                    let begin = format!("rank {failing} of 3 (process ");
                    assert!(message.starts_with(&begin), "{message}");
                    assert!(message.ends_with("has failed: no paper"), "{message}");
                }
            }
        }
    }
}

#[test]
fn a_rank_that_fails_is_named_with_its_words_in_all_others() {
    let found = in_processes(3, |processes| match processes.rank() {
        2 => {
            processes.fail("the disk is full", 3);
            None
        }
        _ => Some(processes.gather("value", &[]).expect_err("one has failed")),
    });
    let others: Vec<&Elsewhere> = found.iter().flatten().collect();
    assert_eq!(others.len(), 2);
    for other in others {
        assert_eq!((other.rank, other.code, other.lost), (2, 3, false));
        assert!(other.message.ends_with("has failed: the disk is full"), "{other}");
    }
}

#[test]
fn a_rank_that_is_gone_without_a_word_is_named() {
    for gone in 0..3 {
        let found = in_processes(3, |processes| {
            if processes.rank() == gone {
                processes.leave(false);
                return String::new();
            }
            processes.gather("value", &[]).expect_err("one is gone").message
        });
        for (_, message) in found.iter().enumerate().filter(|(rank, _)| *rank != gone) {
            assert!(message.starts_with(&format!("rank {gone} of 3 (process ")), "{message}");
            assert!(message.contains("has ended without a word"), "{message}");
        }
    }
}

#[test]
fn a_rank_that_is_gone_before_the_others_are_listened_to_is_told_of_to_all() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = listener.local_addr().expect("it is known");
    // How soon a thread sees that its rank is gone is a matter of luck.
    for _ in 0..100 {
        let connected = || {
            let far = TcpStream::connect(address).expect("connects");
            (listener.accept().expect("is accepted").0, far)
        };
        let ([one, two], roster) = ([connected(), connected()], vec![Who::here(); 3]);
        drop(one.1);
        let streams = vec![(1, one.0), (2, two.0)];
        let hub = Hub::open(roster, 0, streams, Duration::from_secs(20)).expect("opens");
        let failure = hub.failure_within(Duration::from_secs(20)).expect("is seen");
        assert_eq!((failure.rank, failure.lost), (1, true));
        hub.leave(true);
        let mut heard = two.1;
        let mut next = || Frame::read(&mut heard, || {}).expect("is sent").kind;
        assert_eq!([next(), next()], [Kind::Failed, Kind::Bye]);
    }
}

#[test]
fn a_rank_with_something_else_is_named() {
    let found = in_processes(3, |processes| {
        let own = [u8::from(processes.rank() == 2)];
        processes.agree("configurations", &own).expect_err("one has another").message
    });
    assert!(found.iter().all(|message| *message == found[0]));
    assert!(found[0].contains("rank 2") && found[0].ends_with("have different configurations"));
}

#[test]
fn another_secret_is_refused() {
    let port = free_port();
    let limit = ("TRAINER_JOIN_SECONDS", "2");
    let first = launch(0, 2, port, &[("TRAINER_SECRET", "right"), limit]);
    let second = launch(1, 2, port, &[("TRAINER_SECRET", "wrong"), limit]);
    let errors = join_errors(vec![(first, "1"), (second, "1")]);
    assert!(errors[0].contains("rank 1 of 2 did not connect within 2 s"), "{}", errors[0]);
    assert!(
        errors[0].contains("a process at 127.0.0.1 came and has another secret"),
        "{}",
        errors[0]
    );
    assert!(errors[1].contains("rank 1 and rank 0 at 127.0.0.1:"), "{}", errors[1]);
    assert!(errors[1].contains("have different secrets"), "{}", errors[1]);
}

#[test]
fn other_versions_and_numbers_of_processes_and_ranks_that_come_twice_are_refused() {
    let refused = |second: Launch, version: &'static str, port: u16| {
        join_errors(vec![(launch(0, 3, port, &[]), "1"), (second, version)])
    };
    let ports = [free_port(), free_port(), free_port()];
    let version = refused(launch(1, 3, ports[0], &[]), "2", ports[0]);
    assert!(version.iter().all(|error| error.contains("is trainer 2, and rank 0")), "{version:?}");
    let world = refused(launch(1, 2, ports[1], &[]), "1", ports[1]);
    assert!(world.iter().all(|error| error.contains("as one of 2 processes")), "{world:?}");
    let twice = [(0, "1"), (1, "1"), (1, "1")];
    let twice = twice.map(|(rank, version)| (launch(rank, 3, ports[2], &[]), version));
    let twice = join_errors(twice.into());
    assert!(twice.iter().all(|error| error.contains("two processes are rank 1")), "{twice:?}");
}

#[test]
fn a_port_in_use_and_a_rank_that_does_not_come_are_said_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("is free");
    let port = listener.local_addr().expect("is known").port();
    let limit = [("TRAINER_JOIN_SECONDS", "1")];
    let taken = join_errors(vec![(launch(0, 2, port, &limit), "1")]);
    assert!(taken[0].contains(&format!("cannot listen at port {port}")), "{}", taken[0]);
    drop(listener);
    let begin = Instant::now();
    let missing = join_errors(vec![
        (launch(0, 4, port, &limit), "1"),
        (launch(2, 4, port, &[("TRAINER_JOIN_SECONDS", "20")]), "1"),
    ]);
    assert!(
        missing.iter().all(|error| error.contains("ranks 1 and 3 of 4 did not connect")),
        "{missing:?}"
    );
    let alone = join_errors(vec![(launch(1, 2, port, &limit), "1")]);
    assert!(alone[0].contains("has not reached rank 0"), "{}", alone[0]);
    assert!(begin.elapsed() < Duration::from_secs(15));
}

/// Such as who looks which ports are open.
#[test]
fn strangers_do_not_keep_a_run_from_beginning() {
    let port = free_port();
    let stranger = thread::spawn(move || {
        let connect = || TcpStream::connect(("127.0.0.1", port));
        let mut stream = (0..200).find_map(|_| {
            thread::sleep(Duration::from_millis(10));
            connect().ok()
        });
        let stream = stream.as_mut().expect("rank 0 listens");
        std::io::Write::write_all(stream, &[0; 400]).expect("is sent");
        thread::sleep(Duration::from_millis(300));
    });
    let joined = thread::scope(|scope| {
        let first = scope.spawn(move || Processes::join(&launch(0, 2, port, &[]), "1"));
        thread::sleep(Duration::from_millis(400));
        let second = Processes::join(&launch(1, 2, port, &[]), "1");
        let first = first.join().expect("ends");
        (first.map(|first| first.ranks()), second.map(|second| second.ranks()))
    });
    stranger.join().expect("ends");
    assert!(matches!(joined, (Ok(2), Ok(2))), "{joined:?}");
}

#[test]
fn what_listens_and_is_another_program_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("is free");
    let port = listener.local_addr().expect("is known").port();
    let other = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody comes");
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .expect("is sent");
    });
    let error = join_errors(vec![(launch(1, 2, port, &[]), "1")]);
    other.join().expect("ends");
    assert!(error[0].contains("is no process of this run"), "{}", error[0]);
}
