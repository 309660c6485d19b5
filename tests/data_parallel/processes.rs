//! Several processes have the bits of as many devices of one process. They are threads here, with one device
//! each, that exchange over TCP.

use std::net::TcpListener;
use std::thread;

use trainer::parallel::processes::{Launch, Processes, Variables};
use trainer::run::Backoff;

use super::*;

/// What ten steps lead to in one process, and their losses, evaluations and back-offs.
type Trained = (Values, Vec<HeadLoss>, Vec<Vec<f32>>, Vec<Backoff>);

fn launch(rank: usize, world: usize, port: u16) -> Launch {
    let variables: Variables = [
        ("OMPI_COMM_WORLD_RANK", rank.to_string()),
        ("OMPI_COMM_WORLD_SIZE", world.to_string()),
        ("OMPI_COMM_WORLD_LOCAL_RANK", rank.to_string()),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", world.to_string()),
        ("MASTER_PORT", port.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    Launch::find(&variables).expect("is consistent").expect("there are others")
}

/// What `work` gives in each process, which is handed one device of `plan`.
pub fn in_processes<T: Send>(plan: &Plan, work: impl Fn(&mut Bench, usize) -> T + Sync) -> Vec<T> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = listener.local_addr().expect("is known").port();
    drop(listener);
    let world = plan.devices.len();
    let one = |rank: usize| {
        let processes = Processes::join(&launch(rank, world, port), "test").expect("joins");
        let mut bench = Bench::new(plan).expect("opens");
        let own = bench.trainer.ranks.swap_remove(rank);
        bench.trainer.ranks = vec![own];
        bench.trainer.processes = Some(processes.clone());
        let done = work(&mut bench, rank);
        processes.leave(true);
        done
    };
    let one = &one;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..world).map(|rank| scope.spawn(move || one(rank))).collect();
        threads.into_iter().map(|thread| thread.join().expect("ends")).collect()
    })
}

fn evaluated(bench: &mut Bench, number: usize) -> Vec<Vec<f32>> {
    let (values, targets) = batch(number);
    let images = Images::Host { images: &values, shape: [count(number), 1, SIDE, SIDE] };
    bench.trainer.evaluate(images, &targets).expect("evaluates").0
}

fn trained(bench: &mut Bench) -> Trained {
    let losses = (0..STEPS).flat_map(|number| step(bench, number)).collect();
    let rows = (0..4).flat_map(|number| evaluated(bench, number)).collect();
    (state(bench, 0), losses, rows, bench.trainer.backoffs.clone())
}

fn assert_same(found: &Trained, expected: &Trained, what: &str) {
    assert!(bits(&found.0) == bits(&expected.0), "{what}: other bits");
    assert_eq!((&found.1, &found.2, &found.3), (&expected.1, &expected.2, &expected.3), "{what}");
}

#[test]
fn several_processes_have_the_bits_of_as_many_devices() {
    let cases = [
        (2, BATCH_NORM, ""),
        (3, GROUP_NORM, ""),
        (4, BATCH_NORM, "[memory]\nmicro_batch = 1\ncheckpointing = \"every\""),
        (3, BATCH_NORM, "[parallel.data]\nbatch_norm = \"local\""),
    ];
    for (devices, norm, more) in cases {
        let plan = plan(norm, devices, more);
        let expected = trained(&mut Bench::new(&plan).expect("opens"));
        let found = in_processes(&plan, |bench, _| trained(bench));
        for (rank, found) in found.iter().enumerate() {
            assert_same(found, &expected, &format!("process {rank} of {devices}, {more}"));
        }
    }
}

#[test]
fn where_one_process_has_no_memory_all_try_again_together() {
    let plan = plan(BATCH_NORM, 3, "");
    for (rank, operation) in [(0, 0), (1, 5), (2, 8), (1, 11)] {
        let (mut bench, armed) = started(rank, operation);
        step(&mut bench, 1);
        assert!(armed.has_struck(), "operation {operation} of device {rank}");
        drop(armed);
        let expected = (state(&bench, 0), bench.trainer.backoffs.clone());
        let found = in_processes(&plan, |bench, process| {
            step(bench, 0);
            keep_least(bench);
            let own = trainer::memory::fault::strike_after(match process == rank {
                true => operation,
                false => usize::MAX,
            });
            step(bench, 1);
            assert_eq!(own.has_struck(), process == rank);
            (state(bench, 0), bench.trainer.backoffs.clone())
        });
        for (process, found) in found.iter().enumerate() {
            let same = bits(&found.0) == bits(&expected.0);
            assert!(same, "process {process} after {operation} operations of process {rank}");
            assert_eq!(found.1, expected.1);
        }
    }
}
