use super::*;

fn variables(pairs: &[(&str, &str)]) -> Variables {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn found(pairs: &[(&str, &str)]) -> Launch {
    Launch::find(&variables(pairs)).expect("is consistent").expect("there are others")
}

fn ranks(launch: &Launch) -> [usize; 4] {
    [launch.rank, launch.world, launch.local_rank, launch.local_world]
}

/// What `torchrun --nnodes 2 --nproc-per-node 2` of PyTorch 2.9 sets for the last process.
const TORCHRUN: [(&str, &str); 9] = [
    ("RANK", "3"),
    ("WORLD_SIZE", "4"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "2"),
    ("GROUP_RANK", "1"),
    ("MASTER_ADDR", "node01"),
    ("MASTER_PORT", "29500"),
    ("TORCHELASTIC_RUN_ID", "none"),
    ("TORCHELASTIC_RESTART_COUNT", "0"),
];

/// `mpirun -n 4` of Open MPI 4.1 on one machine.
const OPEN_MPI: [(&str, &str); 5] = [
    ("OMPI_COMM_WORLD_RANK", "2"),
    ("OMPI_COMM_WORLD_SIZE", "4"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "2"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
    ("PMIX_NAMESPACE", "2310275073"),
];

/// `srun -N 2 -n 5`, the first task of the second machine.
const SLURM: [(&str, &str); 9] = [
    ("SLURM_JOB_ID", "8123"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_PROCID", "3"),
    ("SLURM_LOCALID", "0"),
    ("SLURM_NODEID", "1"),
    ("SLURM_NTASKS", "5"),
    ("SLURM_STEP_NUM_TASKS", "5"),
    ("SLURM_STEP_NODELIST", "gpu[07,09]"),
    ("SLURM_STEP_TASKS_PER_NODE", "3,2"),
];

fn with(base: &[(&'static str, &'static str)], more: &[(&'static str, &'static str)]) -> Launch {
    found(&[base, more].concat())
}

#[test]
fn each_launcher_is_understood() {
    let torchrun = found(&TORCHRUN);
    assert_eq!((torchrun.launcher, ranks(&torchrun)), (Launcher::Torchrun, [3, 4, 1, 2]));
    // torchrun's own store is at the master's port.
    assert_eq!((torchrun.host.as_str(), torchrun.port), ("node01", 29501));
    let mpi = found(&OPEN_MPI);
    assert_eq!((mpi.launcher, ranks(&mpi)), (Launcher::OpenMpi, [2, 4, 2, 4]));
    assert_eq!(mpi.host, "127.0.0.1");
    let slurm = found(&SLURM);
    assert_eq!((slurm.launcher, ranks(&slurm)), (Launcher::Slurm, [3, 5, 0, 2]));
    assert_eq!(slurm.host, "gpu07");
    for launch in [torchrun, mpi, slurm] {
        assert_eq!((launch.join.as_secs(), launch.silence.as_secs()), (60, 20));
        assert!(!launch.secret.is_given());
    }
}

/// Kubeflow's operator without torchrun: a pod has one process, and nothing else listens at the port.
#[test]
fn without_torchruns_own_variables_the_port_is_the_masters() {
    let launch = found(&[
        ("RANK", "1"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "job-master-0"),
        ("MASTER_PORT", "23456"),
    ]);
    assert_eq!((ranks(&launch), launch.port), ([1, 2, 0, 1], 23456));
}

#[test]
fn all_ranks_of_a_job_find_the_same_port_and_secret_and_other_jobs_find_others() {
    let place = |launch: &Launch| (launch.host.clone(), launch.port, launch.secret.clone());
    let other = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")];
    assert_eq!(place(&found(&OPEN_MPI)), place(&with(&OPEN_MPI, &other)));
    let first = [("SLURM_PROCID", "0"), ("SLURM_NODEID", "0")];
    assert_eq!(place(&found(&SLURM)), place(&with(&SLURM, &first)));
    let step = with(&SLURM, &[("SLURM_STEP_ID", "1")]);
    assert_ne!(step.secret, found(&SLURM).secret);
    assert_ne!(step.port, found(&SLURM).port);
    assert!((15_000..30_000).contains(&step.port));
    let again = with(&TORCHRUN, &[("TORCHELASTIC_RESTART_COUNT", "1")]);
    assert_ne!(again.secret, found(&TORCHRUN).secret);
}

#[test]
fn what_a_person_sets_goes_before_what_follows_from_the_job() {
    let more = [
        ("MASTER_ADDR", "gpu09"),
        ("MASTER_PORT", "4000"),
        ("TRAINER_SECRET", "s3"),
        ("TRAINER_JOIN_SECONDS", "600"),
        ("TRAINER_SILENCE_SECONDS", "5"),
        ("TRAINER_EXCHANGE", "tcp"),
    ];
    let launch = with(&SLURM, &more);
    assert_eq!((launch.host.as_str(), launch.port), ("gpu09", 4000));
    assert_eq!(launch.secret, Secret::given("s3"));
    assert_eq!((launch.join.as_secs(), launch.silence.as_secs()), (600, 5));
    assert!(launch.over_tcp && !found(&SLURM).over_tcp);
    assert!(!with(&SLURM, &[("TRAINER_EXCHANGE", "memory")]).over_tcp);
    let disabled = |value| with(&SLURM, &[("NCCL_P2P_DISABLE", value)]).over_tcp;
    assert_eq!(["1", "0", "no"].map(disabled), [true, false, false]);
    assert_eq!(with(&TORCHRUN, &[("TRAINER_PORT", "4001")]).port, 4001);
}

/// `mpirun` and `torchrun` within a job of Slurm, whose variables they leave.
#[test]
fn what_was_started_last_counts() {
    let mpi: Vec<_> = SLURM.into_iter().chain(OPEN_MPI).collect();
    assert_eq!(found(&mpi).launcher, Launcher::OpenMpi);
    let torchrun: Vec<_> = mpi.into_iter().chain(TORCHRUN).collect();
    assert_eq!(found(&torchrun).launcher, Launcher::Torchrun);
}

#[test]
fn one_process_is_no_launch() {
    let alone: [&[(&str, &str)]; 5] = [
        &[],
        &[("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "localhost")],
        // The script of a job with four tasks: `srun` is what starts them.
        &[
            ("SLURM_JOB_ID", "8123"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_PROCID", "0"),
            ("SLURM_LOCALID", "0"),
        ],
        // An interactive step.
        &[
            ("SLURM_PROCID", "0"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_STEP_NUM_TASKS", "1"),
            ("SLURM_STEP_NODELIST", "n1"),
        ],
        // Somebody else's.
        &[("RANK", "3")],
    ];
    for pairs in alone {
        assert_eq!(Launch::find(&variables(pairs)), Ok(None), "{pairs:?}");
    }
}

#[test]
fn what_does_not_fit_together_is_said() {
    let error = |base: &[(&str, &str)], more: &[(&str, &str)], without: &str| {
        let mut all = variables(base);
        all.extend(variables(more));
        all.remove(without);
        Launch::find(&all).expect_err("is inconsistent").to_string()
    };
    let cases = [
        (error(&TORCHRUN, &[], "RANK"), "WORLD_SIZE is set and RANK is not"),
        (error(&TORCHRUN, &[], "WORLD_SIZE"), "RANK is set and WORLD_SIZE is not"),
        (
            error(&TORCHRUN, &[], "LOCAL_WORLD_SIZE"),
            "LOCAL_RANK is set and LOCAL_WORLD_SIZE is not",
        ),
        (
            error(&TORCHRUN, &[("RANK", "4")], ""),
            "RANK is 4, and WORLD_SIZE is 4: ranks count from 0",
        ),
        (
            error(&TORCHRUN, &[("LOCAL_RANK", "2")], ""),
            "LOCAL_RANK is 2, and LOCAL_WORLD_SIZE is 2",
        ),
        (error(&TORCHRUN, &[("LOCAL_WORLD_SIZE", "8")], ""), "no more processes than there are"),
        (
            error(&TORCHRUN, &[("WORLD_SIZE", "four")], ""),
            "WORLD_SIZE is \"four\", and must be a number",
        ),
        (error(&TORCHRUN, &[("MASTER_PORT", "99999")], ""), "from 1 to 65535"),
        (error(&TORCHRUN, &[("TRAINER_JOIN_SECONDS", "0")], ""), "a number of seconds from 1"),
        (error(&TORCHRUN, &[("TRAINER_EXCHANGE", "udp")], ""), "must be \"tcp\" or \"memory\""),
        (error(&OPEN_MPI, &[], "OMPI_COMM_WORLD_RANK"), "OMPI_COMM_WORLD_RANK is not"),
        (error(&OPEN_MPI, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "3")], ""), "mpirun -x MASTER_ADDR="),
        (error(&SLURM, &[], "SLURM_LOCALID"), "SLURM_LOCALID is not"),
        (error(&SLURM, &[("SLURM_STEP_TASKS_PER_NODE", "2(x")], ""), "a list such as"),
    ];
    for (message, expected) in cases {
        assert!(message.contains(expected), "{message}");
    }
}
