//! How processes find each other: rank 0 listens, the others come to it, and each shows that it has the
//! secret.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use serde::{Deserialize, Serialize};

use super::links::Hub;
use super::secret::{Nonce, Proof, nonce};
use super::{Launch, Processes, Who};

/// How long one step of a greeting may take.
const GREETING: Duration = Duration::from_secs(10);
/// The pause between two attempts to reach rank 0.
const PAUSE: Duration = Duration::from_millis(100);
/// Changes when processes of two versions would misunderstand each other before they can say so.
const MAGIC: [u8; 8] = *b"trainer1";
/// No greeting is longer, in bytes.
const LONGEST: usize = 1 << 20;

/// Why processes have not found each other.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Rank 0 cannot listen.
    #[error(
        "rank 0 cannot listen at port {port}: {source}\nAnother program has it, or another run on this \
         machine. Set TRAINER_PORT to a port that is free, the same in all processes."
    )]
    Listen {
        /// The port.
        port: u16,
        /// What the system says.
        source: io::Error,
    },
    /// Nobody answers where rank 0 should be.
    #[error(
        "rank {rank} has not reached rank 0 at {address} within {seconds} s: {source}\nSee whether rank 0 \
         was started, and whether this machine may connect to that one there. TRAINER_JOIN_SECONDS sets the \
         limit; MASTER_ADDR and TRAINER_PORT say where rank 0 is."
    )]
    NotReached {
        /// Who tried.
        rank: usize,
        /// Where.
        address: String,
        /// For how long.
        seconds: u64,
        /// What happened last.
        source: io::Error,
    },
    /// Somebody else answers there.
    #[error(
        "what listens at {0} is no process of this run\nSet TRAINER_PORT to a port that is free, the same \
         in all processes."
    )]
    Stranger(String),
    /// Processes have other secrets.
    #[error(
        "rank {rank} and rank 0 at {address} have different secrets\nSet TRAINER_SECRET to the same in all \
         processes; where none sets it, they must be of one job. It may also be rank 0 of another run: \
         then set TRAINER_PORT to a port of this run's own."
    )]
    Secret {
        /// Who is refused.
        rank: usize,
        /// By whom.
        address: String,
    },
    /// Some did not come.
    #[error(
        "{missing} of {world} did not connect within {seconds} s{refused}\nSee whether they were \
         started, what \
         they say, and whether their machines may connect to {address}. TRAINER_JOIN_SECONDS sets the limit."
    )]
    Missing {
        /// Who, as a phrase.
        missing: String,
        /// How many there should be.
        world: usize,
        /// For how long they were waited for.
        seconds: u64,
        /// Who came and was refused, as a phrase.
        refused: String,
        /// Where rank 0 listens.
        address: String,
    },
    /// What processes say of themselves does not fit together.
    #[error("{0}")]
    Disagree(String),
    /// Some did not come to rank 0, in its words.
    #[error("{0}")]
    Others(String),
    /// Rank 0 has ended before all had come.
    #[error("rank 0 at {0} ended before all ranks had connected; its messages say why")]
    Abandoned(String),
    /// The system refuses something.
    #[error("the processes cannot be connected: {0}")]
    System(#[from] io::Error),
}

/// What a process says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hello {
    rank: usize,
    world: usize,
    version: String,
    who: Who,
}

/// What rank 0 answers when all have come.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Roster(Vec<Who>),
    /// They do not fit together.
    Refused(String),
    /// Some are missing.
    Missing(String),
}

/// Somebody who came to rank 0.
enum Came {
    Rank(Hello, TcpStream),
    /// From this address, without the secret.
    Refused(SocketAddr),
}

/// Connects the processes of `launch`, all of this `version` of the program.
pub(super) fn join(launch: &Launch, version: &str) -> Result<Processes, JoinError> {
    let Launch { rank, world, .. } = *launch;
    let hello = Hello { rank, world, version: version.to_owned(), who: Who::here() };
    let (roster, streams) = match rank {
        0 => gather(launch, hello)?,
        _ => {
            let (roster, stream) = reach(launch, &hello)?;
            (roster, vec![(0, stream)])
        }
    };
    for (_, stream) in &streams {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
    }
    Ok(Processes::new(Hub::open(roster, rank, streams, launch.silence)?, launch))
}

type Joined = (Vec<Who>, Vec<(usize, TcpStream)>);

/// Rank 0 waits for the others.
fn gather(launch: &Launch, own: Hello) -> Result<Joined, JoinError> {
    let Launch { port, world, join, .. } = *launch;
    let listener = listen(launch).map_err(|source| JoinError::Listen { port, source })?;
    listener.set_nonblocking(true)?;
    let (sender, came) = unbounded();
    let end = Instant::now() + join;
    let mut others: Vec<Option<(Hello, TcpStream)>> = (1..world).map(|_| None).collect();
    let mut refused = Vec::new();
    while others.iter().any(Option::is_none) {
        if Instant::now() >= end {
            let missing = (1..world).filter(|rank| others[rank - 1].is_none());
            let error = missing_error(launch, &missing.collect::<Vec<_>>(), &refused);
            refuse(others.into_iter().flatten(), &Answer::Missing(error.to_string()));
            return Err(error);
        }
        match listener.accept() {
            Ok((stream, from)) => greet_apart(launch, stream, from, sender.clone()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(10));
            }
            // Who came has gone again.
            Err(_) => {}
        }
        for came in drain(&came) {
            match came {
                Came::Refused(from) => refused.push(from),
                Came::Rank(hello, stream) => {
                    if let Some(fault) = fault(&own, &hello, &others) {
                        let all = others.into_iter().flatten().chain([(hello, stream)]);
                        refuse(all, &Answer::Refused(fault.clone()));
                        return Err(JoinError::Disagree(fault));
                    }
                    let place = hello.rank - 1;
                    others[place] = Some((hello, stream));
                }
            }
        }
    }
    let others: Vec<(Hello, TcpStream)> = others.into_iter().flatten().collect();
    let roster: Vec<Who> =
        std::iter::once(own.who).chain(others.iter().map(|(hello, _)| hello.who.clone())).collect();
    let answer = serde_json::to_vec(&Answer::Roster(roster.clone())).map_err(io::Error::other)?;
    let mut streams = Vec::new();
    for (hello, mut stream) in others {
        // Who has gone by now is told of as one that has failed.
        let _ = send(&mut stream, &answer);
        streams.push((hello.rank, stream));
    }
    Ok((roster, streams))
}

fn drain(came: &Receiver<Came>) -> Vec<Came> {
    came.try_iter().collect()
}

/// At all addresses of this machine, unless all processes are on it.
fn listen(launch: &Launch) -> io::Result<TcpListener> {
    let Launch { host, port, .. } = launch;
    let named = (host.as_str(), *port).to_socket_addrs();
    let named: Vec<SocketAddr> = named.into_iter().flatten().collect();
    if launch.local_world == launch.world && named.iter().all(|at| at.ip().is_loopback()) {
        let own = named.first().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), SocketAddr::ip);
        return TcpListener::bind((own, *port));
    }
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port)).or_else(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Err(error),
        // Without IPv6.
        _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)),
    })
}

/// On a thread of its own: who says nothing keeps nobody waiting.
fn greet_apart(launch: &Launch, mut stream: TcpStream, from: SocketAddr, came: Sender<Came>) {
    let launch = launch.clone();
    thread::spawn(move || match greet(&launch, &mut stream) {
        Ok(Some(hello)) => drop(came.send(Came::Rank(hello, stream))),
        Ok(None) => drop(came.send(Came::Refused(from))),
        // Somebody who is not meant.
        Err(_) => {}
    });
}

/// Rank 0's side of a greeting; `None` where the other one has another secret.
fn greet(launch: &Launch, stream: &mut TcpStream) -> io::Result<Option<Hello>> {
    stream.set_nonblocking(false)?;
    limit(stream, GREETING)?;
    let own = nonce()?;
    stream.write_all(&MAGIC)?;
    stream.write_all(&own)?;
    let other = check_magic(stream)?;
    let hello = receive(stream)?;
    let mut proof = Proof::default();
    stream.read_exact(&mut proof)?;
    if !launch.secret.accepts(proof, "rank", [&own, &other], &hello) {
        stream.write_all(&[0])?;
        return Ok(None);
    }
    stream.write_all(&[1])?;
    stream.write_all(&launch.secret.proof("rank 0", [&own, &other], &hello))?;
    serde_json::from_slice(&hello).map(Some).map_err(io::Error::other)
}

/// What `hello` says that does not fit to rank 0 and those that have come.
fn fault(own: &Hello, hello: &Hello, others: &[Option<(Hello, TcpStream)>]) -> Option<String> {
    let Hello { rank, world, version, who } = hello;
    if *version != own.version {
        return Some(format!(
            "rank {rank} ({who}) is trainer {version}, and rank 0 ({}) is trainer {}\nInstall the same \
             version on all machines.",
            own.who, own.version
        ));
    }
    if *world != own.world {
        return Some(format!(
            "rank {rank} ({who}) was started as one of {world} processes, and rank 0 ({}) as one of {}",
            own.who, own.world
        ));
    }
    let taken = match rank.checked_sub(1).map(|place| others.get(place)) {
        None | Some(None) => Some(&own.who),
        Some(Some(other)) => other.as_ref().map(|(hello, _)| &hello.who),
    };
    taken.map(|taken| format!("two processes are rank {rank}: {taken} and {who}"))
}

fn refuse(others: impl Iterator<Item = (Hello, TcpStream)>, answer: &Answer) {
    let answer = serde_json::to_vec(answer).unwrap_or_default();
    for (_, mut stream) in others {
        let _ = send(&mut stream, &answer);
    }
}

fn missing_error(launch: &Launch, missing: &[usize], refused: &[SocketAddr]) -> JoinError {
    let ranks: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let missing = match ranks.as_slice() {
        [rank] => format!("rank {rank}"),
        [first @ .., last] => format!("ranks {} and {last}", first.join(", ")),
        [] => "ranks".to_owned(),
    };
    let refused = refused.first().map_or(String::new(), |from| {
        format!("; a process at {} came and has another secret (TRAINER_SECRET)", from.ip())
    });
    let (world, seconds) = (launch.world, launch.join.as_secs());
    JoinError::Missing { missing, world, seconds, refused, address: address(launch) }
}

/// A rank comes to rank 0.
fn reach(launch: &Launch, hello: &Hello) -> Result<(Vec<Who>, TcpStream), JoinError> {
    let (begin, address) = (Instant::now(), address(launch));
    let hello = serde_json::to_vec(hello).map_err(io::Error::other)?;
    let mut stream = loop {
        let source = match connect(launch) {
            Ok(stream) => break stream,
            Err(source) => source,
        };
        if begin.elapsed() >= launch.join {
            let (rank, seconds) = (launch.rank, launch.join.as_secs());
            return Err(JoinError::NotReached { rank, address, seconds, source });
        }
        thread::sleep(PAUSE);
    };
    limit(&stream, GREETING)?;
    let stranger = |_| JoinError::Stranger(address.clone());
    let other = check_magic(&mut stream).map_err(stranger)?;
    let own = nonce()?;
    let proof = launch.secret.proof("rank", [&other, &own], &hello);
    let greeted = stream
        .write_all(&MAGIC)
        .and_then(|()| stream.write_all(&own))
        .and_then(|()| send(&mut stream, &hello))
        .and_then(|()| stream.write_all(&proof));
    greeted.map_err(stranger)?;
    let mut accepted = [0];
    stream.read_exact(&mut accepted).map_err(stranger)?;
    let mut proof = Proof::default();
    if accepted == [1] {
        stream.read_exact(&mut proof).map_err(stranger)?;
    }
    if !launch.secret.accepts(proof, "rank 0", [&other, &own], &hello) {
        return Err(JoinError::Secret { rank: launch.rank, address });
    }
    // Until the last one has come, and a little longer.
    limit(&stream, launch.join + GREETING)?;
    let abandoned = |_| JoinError::Abandoned(address.clone());
    let answer = receive(&mut stream).map_err(abandoned)?;
    match serde_json::from_slice(&answer).map_err(io::Error::other)? {
        Answer::Roster(roster) => Ok((roster, stream)),
        Answer::Refused(why) => Err(JoinError::Disagree(why)),
        Answer::Missing(why) => Err(JoinError::Others(why)),
    }
}

fn address(launch: &Launch) -> String {
    format!("{}:{}", launch.host, launch.port)
}

fn connect(launch: &Launch) -> io::Result<TcpStream> {
    let nowhere = || io::Error::new(io::ErrorKind::NotFound, "the name is of no machine");
    let mut last = nowhere();
    for address in (launch.host.as_str(), launch.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, GREETING) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn limit(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))
}

/// The nonce of the other side, which must be of this program.
fn check_magic(stream: &mut TcpStream) -> io::Result<Nonce> {
    let (mut magic, mut nonce) = ([0; MAGIC.len()], Nonce::default());
    stream.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Err(io::Error::other("another program"));
    }
    stream.read_exact(&mut nonce)?;
    Ok(nonce)
}

fn send(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(&(bytes.len() as u32).to_le_bytes())?;
    stream.write_all(bytes)
}

fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::Error::other("a greeting too long"));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
