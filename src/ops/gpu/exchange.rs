//! Sums over several cards, of one process or each of its own, by kernels that write into each other's memory.
//!
//! `kernels/exchange.cuh` says how values travel. Sums are taken in the order of the cards, so that all
//! of them get the same bits. What a card waits for is told by numbers, which every card counts by itself:
//! all run the same program. Nothing else is launched for a norm, whose kernels exchange on their way.
//!
//! Processes whose cards do not reach each other's memory, as those of several machines, have the same kernels
//! write into the host's, from where a relay takes the values to the others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use burn::tensor::{DType, Tensor};

use super::arrays::{ARRAYS, HEADER, Places};
use super::channels_last::Partials;
#[cfg(feature = "cuda")]
use super::cuda::{Carry, Fence, Offered, Peers, Relay};
use super::given::Giving;
#[cfg(feature = "cuda")]
use super::given::{bytes_with_room, chunks_in};
use super::gpu::{Arguments, lock};
use super::kernels::{EXCHANGE, blocks};
#[cfg(any(feature = "cuda", test))]
use super::messages::Ways;
use super::messages::{Crossing, Expected, Leaving, message_kernel};
#[cfg(feature = "cuda")]
use super::messages::{WORDS, let_neighbours_reach, ways_of_cards};
use super::{Buffer, Gpu, Kernel, Sizes};
#[cfg(feature = "cuda")]
use super::{Element, Kernels};

/// The most cards that exchange: `table` in `kernels/exchange.cuh`.
pub const MOST_CARDS: usize = 8;
/// Values of one card in one exchange, as in `kernels/exchange.cuh`.
const SLOTS: usize = 12288;
/// In front of the kernels that put together arrays of any length.
pub(super) const TURNS: &str = include_str!("kernels/turns.cuh");
/// Blocks of these kernels, the values that one takes in a turn, and the slots of a place: as in `kernels/turns.cuh`.
const BLOCKS: usize = 128;
pub(super) const CHUNK: usize = 8192;
const SLOTS_OF_PLACE: usize = 4;
/// Threads that give, that add up and that store in a block of `kernels/all_reduce.cu`.
const ROLE: u32 = 256;
/// Values of one array in a launch of them, whose sizes are counted in 31 bits.
const LAUNCH: usize = 1 << 30;
/// So often a piece of work is done with care before it is known.
const WARM_UPS: usize = 2;

/// One card's side of the exchanges between several.
#[derive(Debug, Clone)]
pub struct Exchange(pub(super) Arc<Side>);

#[derive(Debug)]
pub(super) struct Side {
    pub(super) gpu: Gpu,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// Where each card's memory begins, and where the word is that ends all waiting.
    pub(super) table: Buffer,
    /// The same, for a kernel that is given it by value.
    addresses: Vec<u32>,
    /// Blocks that run at once on every card.
    pub(super) blocks: usize,
    /// The numbers of the last exchanges: among the first two cards, the first three, …, and the last
    /// turn of the sums over all; then those of the last messages between neighbours.
    pub(super) numbers: Vec<AtomicU32>,
    /// The same when the attempt began.
    begun: Vec<AtomicU32>,
    /// Whether the device stands still before and after each exchange.
    pub(super) careful: AtomicBool,
    sum: Kernel,
    all_reduce: Kernel,
    all_gather: Kernel,
    pub(super) message: Kernel,
    /// The ways by which it sends values to the next card of a pipeline and gradients to the one before, and those by which it receives them.
    pub(super) sends: [Option<Arc<Crossing>>; 2],
    pub(super) receives: [Option<Arc<Crossing>>; 2],
    /// The last message of each flow, whose memory is held until it has left.
    pub(super) leaving: [Mutex<Option<Leaving>>; 2],
    /// The memory for the next message of each flow.
    pub(super) expected: [Mutex<Option<Expected>>; 2],
    pub(super) giving: Giving,
    #[cfg(feature = "cuda")]
    pub(super) peers: Option<Arc<Peers>>,
    /// The end of the last step that all cards take, where the host has not waited for it.
    #[cfg(feature = "cuda")]
    step: Mutex<Option<Fence>>,
    /// Where cards of other processes are reached through it.
    #[cfg(feature = "cuda")]
    relay: Option<Arc<Relay>>,
}

/// 64-bit words in front of those of the exchanges among the first `ranks` cards.
fn first(ranks: usize) -> usize {
    SLOTS * (ranks * (ranks - 1) - 2)
}

/// Bytes of memory of one of `ranks` cards that the others reach for sums.
pub(super) fn bytes(ranks: usize) -> usize {
    8 * first(ranks + 1) + 2 * 4 * SLOTS_OF_PLACE * BLOCKS * (MOST_CARDS + CHUNK)
}

/// The kernels that put together what cards have and do nothing else: sums of few values and of many, and shards.
pub(super) fn exchange_kernels() -> [Kernel; 3] {
    let in_turns =
        |entry, threads, text| Kernel::new(entry, threads, &[], &[EXCHANGE, HEADER, TURNS, text]);
    let sum = include_str!("kernels/exchange_sum.cu");
    [
        Kernel::new("exchange_sum", 256, &[], &[EXCHANGE, sum]),
        in_turns("all_reduce", 3 * ROLE, include_str!("kernels/all_reduce.cu")),
        in_turns("all_gather", 512, include_str!("kernels/all_gather.cu")),
    ]
}

impl Exchange {
    /// One of a dry run, among `ranks` cards.
    pub fn dry(gpu: &Gpu, ranks: usize) -> Self {
        let addresses = vec![0; 2 * (MOST_CARDS + 1)];
        Self(Arc::new(Side::new(gpu, [0, ranks], addresses, gpu.multiprocessors())))
    }

    /// Launches a kernel that exchanges up to `values` values among the first `ranks` cards: `launch` is
    /// given the table, and `sizes` with what such a kernel needs besides. It writes into `written`.
    ///
    /// # Panics
    ///
    /// When there are too many values.
    pub(super) fn among(
        &self,
        ranks: usize,
        values: usize,
        sizes: Sizes,
        written: &Buffer,
        launch: impl FnOnce(&Buffer, &Sizes),
    ) {
        assert!(values <= SLOTS, "{values} values are exchanged at once, and {SLOTS} can be");
        assert!((2..=self.0.ranks).contains(&ranks), "{ranks} of {} cards", self.0.ranks);
        let number = self.0.next(ranks - 2, 1);
        #[cfg(feature = "cuda")]
        if let Some(relay) = &self.0.relay {
            let half = number as usize & 1;
            let begin = first(ranks) + (half * ranks + self.0.rank) * SLOTS;
            relay.send(begin..begin + values, number);
        }
        let sizes = self.0.part(sizes, ranks, first(ranks), number);
        self.0.with_care(written, || launch(&self.0.table, &sizes));
    }

    /// What kernels are given to exchange by: see `kernels/exchange.cuh`.
    #[cfg(feature = "cuda")]
    pub(super) fn table(&self) -> &Buffer {
        &self.0.table
    }

    /// Whether values go through the host's memory and other processes: what is long is then better exchanged
    /// by these themselves.
    pub fn is_relayed(&self) -> bool {
        #[cfg(feature = "cuda")]
        return self.0.relay.is_some();
        #[cfg(not(feature = "cuda"))]
        false
    }

    /// The sums over the first `ranks` cards of `values`, which are as many on all of them.
    pub fn sum(&self, ranks: usize, values: &Buffer) -> Buffer {
        let out = self.0.gpu.floats(values.len());
        for start in (0..values.len()).step_by(SLOTS) {
            let part = start..values.len().min(start + SLOTS);
            let (from, to) = (values.range(part.clone()), out.range(part.clone()));
            let sizes = Sizes::of([part.len(), 0]);
            self.among(ranks, part.len(), sizes, &to, |table, sizes| {
                let grid = [blocks(part.len(), 256), 1, 1];
                self.0.gpu.launch(&self.0.sum, grid, &[&from, table, &to], sizes);
            });
        }
        out
    }

    /// [`Exchange::sum`] of tensors.
    #[cfg(feature = "cuda")]
    pub fn sum_of(&self, ranks: usize, values: Tensor<1>) -> Tensor<1> {
        let dtype = values.dtype();
        let sum = self.sum(ranks, &Buffer::of_tensor(values.cast(DType::F32)));
        self.0.gpu.tensor(&sum, [sum.len()]).cast(dtype)
    }

    /// [`Exchange::sum_over_all`] of tensors of so many numbers of a type, which are added in 32 bits. A card
    /// without one of them adds zeros.
    #[cfg(feature = "cuda")]
    pub fn sum_of_all(&self, values: Vec<(Option<Tensor<1>>, usize, DType)>) -> Vec<Tensor<1>> {
        let gpu = &self.0.gpu;
        let types: Vec<DType> = values.iter().map(|(_, _, dtype)| *dtype).collect();
        let lacking = values.iter().filter(|(values, ..)| values.is_none());
        let longest = lacking.map(|(_, length, _)| *length).max();
        let zeros = |length: usize| Kernels::shared(gpu.clone(), Element::F32).filled(length, 0.0);
        let zeros = longest.map(zeros);
        let buffer = |(values, length, _): (Option<Tensor<1>>, usize, DType)| match values {
            Some(values) => Buffer::of_tensor(values.cast(DType::F32)),
            None => zeros.as_ref().expect("one is lacking").range(0..length),
        };
        let values: Vec<Buffer> = values.into_iter().map(buffer).collect();
        let sums = self.sum_over_all(&values).into_iter().zip(types);
        sums.map(|(sum, dtype)| gpu.tensor(&sum, [sum.len()]).cast(dtype)).collect()
    }

    /// There is no card without CUDA.
    #[cfg(not(feature = "cuda"))]
    pub fn sum_of(&self, _: usize, values: Tensor<1>) -> Tensor<1> {
        values
    }

    /// There is no card without CUDA.
    #[cfg(not(feature = "cuda"))]
    pub fn sum_of_all(&self, values: Vec<(Option<Tensor<1>>, usize, DType)>) -> Vec<Tensor<1>> {
        values.into_iter().filter_map(|(values, _, _)| values).collect()
    }

    /// The sums over all cards of each of `values`, which may be long and are as long on all of them. A
    /// launch for every 32 of them.
    pub fn sum_over_all(&self, values: &[Buffer]) -> Vec<Buffer> {
        let side = &self.0;
        let out: Vec<Buffer> = values.iter().map(|values| side.gpu.floats(values.len())).collect();
        // Of arrays that are longer than can be counted, parts.
        let part = |(from, to): (&Buffer, &Buffer)| {
            let starts = (0..from.len()).step_by(LAUNCH);
            let parts = starts.map(|start| start..from.len().min(start + LAUNCH));
            parts.map(|part| (from.range(part.clone()), to.range(part))).collect::<Vec<_>>()
        };
        let parts: Vec<(Buffer, Buffer)> = values.iter().zip(&out).flat_map(part).collect();
        for arrays in parts.chunks(ARRAYS) {
            let arrays: Vec<_> = arrays.iter().map(|(from, to)| (from.len(), from, to)).collect();
            // A chunk has a piece for each card.
            let piece = CHUNK / side.ranks / 4 * 4;
            side.launch_in_turns(&side.all_reduce, piece * side.ranks, &arrays);
        }
        out
    }

    /// The array of `length` values whose shards the cards have, one behind another in their order; `own` is this
    /// card's [`Shard`](crate::parallel::Shard) of it, or nothing where that is empty. None where it is too long for a kernel.
    pub fn gather(&self, own: Option<&Buffer>, length: usize) -> Option<Buffer> {
        let side = &self.0;
        if i32::try_from(length).is_err() {
            return None;
        }
        let out = side.gpu.floats(length);
        // It is given, and not read.
        let own = own.unwrap_or(&out);
        // A chunk is as much of the shard of each card.
        side.launch_in_turns(&side.all_gather, CHUNK * side.ranks, &[(length, own, &out)]);
        Some(out)
    }

    /// [`Exchange::gather`] of tensors.
    #[cfg(feature = "cuda")]
    pub fn gather_of(
        &self,
        own: Option<&Tensor<1>>,
        length: usize,
        dtype: DType,
    ) -> Option<Tensor<1>> {
        let own = own.map(|own| Buffer::of_tensor(own.clone().cast(DType::F32)));
        let whole = self.gather(own.as_ref(), length)?;
        Some(self.0.gpu.tensor(&whole, [length]).cast(dtype))
    }

    /// There is no card without CUDA.
    #[cfg(not(feature = "cuda"))]
    pub fn gather_of(&self, _: Option<&Tensor<1>>, _: usize, _: DType) -> Option<Tensor<1>> {
        None
    }
}

impl Side {
    /// Launches a kernel of `kernels/turns.cuh` over at most [`ARRAYS`] arrays: the length of each, what the kernel reads
    /// and what it writes. A chunk is `chunk` values of an array's length.
    fn launch_in_turns(&self, kernel: &Kernel, chunk: usize, arrays: &[(usize, &Buffer, &Buffer)]) {
        let chunks: usize = arrays.iter().map(|(length, ..)| blocks(*length, chunk)).sum();
        let grid = chunks.min(self.blocks);
        let turns = blocks(chunks, grid);
        let number = self.next(self.ranks - 1, turns as u32);
        let sizes = Sizes::of([arrays.len(), turns]);
        let sizes = self.part(sizes, self.ranks, first(self.ranks + 1), number);
        let sizes = self.with_addresses(sizes);
        let groups: Vec<_> =
            arrays.iter().map(|(length, from, to)| (*length, vec![*from, *to])).collect();
        self.with_care(arrays[0].2, || {
            let places = Places { step: chunk, most_blocks: grid };
            self.gpu.launch_over(kernel, places, &groups, &[], sizes);
        });
    }

    pub(super) fn new(
        gpu: &Gpu,
        [rank, ranks]: [usize; 2],
        addresses: Vec<u32>,
        blocks: usize,
    ) -> Self {
        let [sum, all_reduce, all_gather] = exchange_kernels();
        // Of sums, of messages between each card and the next, and of what all give.
        let kinds = ranks + 2 * (ranks - 1) + 1;
        let numbers = |kinds: usize| (0..kinds).map(|_| AtomicU32::new(0)).collect();
        Self {
            gpu: gpu.clone(),
            rank,
            ranks,
            table: gpu.upload_integers(&addresses),
            addresses,
            blocks: blocks.min(BLOCKS),
            numbers: numbers(kinds),
            begun: numbers(kinds),
            careful: AtomicBool::new(false),
            sum,
            all_reduce,
            all_gather,
            message: message_kernel(),
            sends: Default::default(),
            receives: Default::default(),
            leaving: Default::default(),
            expected: Default::default(),
            giving: Giving::nothing(),
            #[cfg(feature = "cuda")]
            peers: None,
            #[cfg(feature = "cuda")]
            step: Mutex::default(),
            #[cfg(feature = "cuda")]
            relay: None,
        }
    }

    /// One of a dry run, between the cards of a pipeline.
    #[cfg(test)]
    pub(super) fn of_pipeline(gpu: &Gpu, place: [usize; 2], ways: Ways) -> Self {
        let addresses = vec![0; 2 * (MOST_CARDS + 1)];
        Self::new(gpu, place, addresses, gpu.multiprocessors()).with_ways(ways)
    }

    /// Lets it send and receive messages.
    #[cfg(any(feature = "cuda", test))]
    fn with_ways(self, [sends, receives]: Ways) -> Self {
        Self { sends, receives, ..self }
    }

    /// The last number of a kind.
    #[cfg(test)]
    pub(super) fn number(&self, kind: usize) -> u32 {
        self.numbers[kind].load(Ordering::Relaxed)
    }

    /// That of one of `peers`.
    #[cfg(feature = "cuda")]
    fn of(gpu: &Gpu, place: [usize; 2], blocks: usize, peers: &Arc<Peers>) -> Self {
        let mut table = peers.addresses();
        table.resize(MOST_CARDS, 0);
        table.push(peers.word());
        let words = table.into_iter().flat_map(|at| [at as u32, (at >> 32) as u32]).collect();
        Self { peers: Some(Arc::clone(peers)), ..Self::new(gpu, place, words, blocks) }
    }

    /// The first of the next `count` numbers of a kind.
    pub(super) fn next(&self, kind: usize, count: u32) -> u32 {
        self.numbers[kind].fetch_add(count, Ordering::Relaxed).wrapping_add(1)
    }

    /// The next number of a kind, and how many there have been before it in this attempt.
    pub(super) fn next_of(&self, kind: usize) -> (u32, u32) {
        let number = self.next(kind, 1);
        (number, number.wrapping_sub(self.begun[kind].load(Ordering::Relaxed) + 1))
    }

    pub(super) fn part(&self, sizes: Sizes, ranks: usize, first: usize, number: u32) -> Sizes {
        sizes.int(self.rank).int(ranks).int(first).bits(number)
    }

    /// With the table, by value.
    pub(super) fn with_addresses(&self, sizes: Sizes) -> Sizes {
        self.addresses.iter().fold(sizes, |sizes, word| sizes.bits(*word))
    }

    /// Launches a kernel that waits for other cards. The first times that a piece of work is done,
    /// nothing else happens on the card while it waits: kernels are loaded then, and memory is taken, for
    /// which the driver may wait for the card.
    pub(super) fn with_care(&self, written: &Buffer, launch: impl FnOnce()) {
        if !self.careful.load(Ordering::Relaxed) {
            return launch();
        }
        self.settle();
        launch();
        self.check(written);
        self.settle();
    }

    /// Waits until everything launched so far has run. What has failed is told where it is read.
    fn settle(&self) {
        #[cfg(feature = "cuda")]
        if self.peers.is_some() {
            let _ = self.gpu.wait();
        }
    }

    /// Waits until all is launched. Unwinds where the kernel that was to write `written` could not be: the other cards would
    /// wait for it.
    pub(super) fn check(&self, written: &Buffer) {
        #[cfg(feature = "cuda")]
        if self.peers.is_some()
            && let Err(text) = self.gpu.check(std::slice::from_ref(written))
        {
            fails(&text);
        }
        #[cfg(not(feature = "cuda"))]
        let _ = written;
    }
}

/// Unwinds where a card cannot launch what others would wait for, as this text says.
#[cfg(feature = "cuda")]
pub(super) fn fails(text: &str) -> ! {
    match crate::memory::OutOfMemory::in_text(text) {
        Some(out_of_memory) => out_of_memory.throw(),
        None => panic!("a card cannot exchange sums: {text}"),
    }
}

/// Memory of so many bytes of each of one process's cards that all of them reach, and what a person should know of the way that sums go.
#[cfg(feature = "cuda")]
fn peers_of(gpus: &[Gpu], bytes: usize) -> Result<(Arc<Peers>, Option<String>), String> {
    let ranks = gpus.len();
    if !(2..=MOST_CARDS).contains(&ranks) {
        return Err(format!("{ranks} cards cannot compute together; 2 to {MOST_CARDS} can"));
    }
    let indices: Vec<usize> = gpus.iter().map(Gpu::index).collect();
    if let Some(twice) = (1..ranks).find(|place| indices[..*place].contains(&indices[*place])) {
        return Err(format!("`cuda:{}` is named twice", indices[twice]));
    }
    let (peers, warning) = Peers::open(&indices, bytes)?;
    Ok((Arc::new(peers), warning))
}

/// The side of each of one process's cards.
#[cfg(feature = "cuda")]
fn sides_of(gpus: &[Gpu], peers: &Arc<Peers>) -> impl Iterator<Item = Side> {
    let blocks = gpus.iter().map(Gpu::multiprocessors).min().unwrap_or(1);
    let side = move |(rank, gpu)| Side::of(gpu, [rank, gpus.len()], blocks, peers);
    gpus.iter().enumerate().map(side)
}

/// The sides of all cards of a run.
#[derive(Debug)]
pub struct Exchanges {
    sides: Vec<Exchange>,
    /// What a person should know of the way that sums go.
    pub warning: Option<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The work under way, and the numbers that it began with.
    work: String,
    begun: Vec<u32>,
    /// How often each piece of work has been done.
    warmed_up: HashMap<String, usize>,
}

impl Exchanges {
    /// Those between `gpus`, one process's cards in the order of the ranks, each of which has `room` bytes for what the others
    /// [give](Exchange::give) it. Where cards do not reach each other's memory, values go through the host's, and nothing is given.
    ///
    /// # Errors
    ///
    /// When there are more than eight cards, and what the driver says.
    #[cfg(feature = "cuda")]
    pub fn open(gpus: &[Gpu], room: u64) -> Result<Self, String> {
        let ranks = gpus.len();
        let chunks = chunks_in(room, ranks.max(2));
        let (peers, warning) = peers_of(gpus, bytes_with_room(ranks.max(2), chunks))?;
        let sides = |room: usize| -> Result<Vec<Exchange>, String> {
            let sides = sides_of(gpus, &peers);
            sides.map(|side| Ok(Exchange(Arc::new(side.with_room(room)?)))).collect()
        };
        // Copy engines go from card to card.
        let chunks = if warning.is_none() { chunks } else { 0 };
        let sides = sides(chunks).or_else(|_| {
            // Those that could be made have ended all waiting.
            peers.clear();
            sides(0)
        })?;
        Ok(Self { warning, ..Self::of_sides(sides) })
    }

    /// What the cards `gpus` of one pipeline send each other activations and their gradients by, in the order of their
    /// places. The host carries messages where copy engines do not take them.
    ///
    /// # Errors
    ///
    /// As [`Exchanges::open`].
    #[cfg(feature = "cuda")]
    pub fn between(gpus: &[Gpu]) -> Result<Self, String> {
        let (peers, mut warning) = peers_of(gpus, WORDS)?;
        if warning.is_none()
            && let Err(reason) = let_neighbours_reach(gpus)
        {
            warning = Some(format!(
                "the cards' copy engines do not reach each other's memory ({reason}); messages go through the \
                 host's, which is slower"
            ));
        }
        let ways = ways_of_cards(gpus, &peers, warning.is_some()).unwrap_or_else(|reason| {
            // Those that could be made have ended all waiting.
            peers.clear();
            warning = Some(format!(
                "the cards' copy engines do not take messages ({reason}); the host carries them, which is much \
                 slower"
            ));
            gpus.iter().map(|_| Ways::default()).collect()
        });
        let sides = sides_of(gpus, &peers).zip(ways);
        let sides = sides.map(|(side, ways)| Exchange(Arc::new(side.with_ways(ways)))).collect();
        Ok(Self { warning, ..Self::of_sides(sides) })
    }

    /// What one of `ranks` processes, whose card is `gpu`, offers the others, with `room` bytes for what they give it.
    ///
    /// # Errors
    ///
    /// What the driver says.
    #[cfg(feature = "cuda")]
    pub fn offer(gpu: &Gpu, ranks: usize, room: u64) -> Result<Offered, String> {
        Offered::new(gpu.index(), bytes_with_room(ranks, chunks_in(room, ranks)))
    }

    /// That of one of several processes on one machine, each with a card: `place` is its rank and how many there
    /// are. `handles` are what each has [offered](Exchanges::offer), this one `offered`; `blocks` run at once on
    /// every card. `room` is as it was offered.
    ///
    /// # Errors
    ///
    /// Why a card's memory cannot be reached.
    #[cfg(feature = "cuda")]
    pub fn of_process(
        gpu: &Gpu,
        place: [usize; 2],
        offered: Offered,
        handles: &[Vec<u8>],
        blocks: usize,
        room: u64,
    ) -> Result<Self, String> {
        let peers = Arc::new(Peers::of_process(offered, place[0], handles)?);
        let side = Side::of(gpu, place, blocks, &peers);
        let side = side.with_room(chunks_in(room, place[1]))?;
        Ok(Self::of_sides(vec![Exchange(Arc::new(side))]))
    }

    /// The same where processes do not reach the memory of each other's cards: `carry` takes a message to all others,
    /// where it is to be [delivered](Exchanges::delivery).
    ///
    /// # Errors
    ///
    /// What the driver or the system says.
    #[cfg(feature = "cuda")]
    pub fn relayed(gpu: &Gpu, place: [usize; 2], carry: Carry) -> Result<Self, String> {
        let [rank, ranks] = place;
        let peers = Arc::new(Peers::apart(gpu.index(), place, bytes(ranks))?);
        let relay = Relay::new(&peers, rank, first(ranks + 1), carry)?;
        let side = Side::of(gpu, place, gpu.multiprocessors(), &peers);
        let side = Side { relay: Some(Arc::new(relay)), ..side };
        Ok(Self::of_sides(vec![Exchange(Arc::new(side))]))
    }

    /// What gives this process's card a message of another one.
    #[cfg(feature = "cuda")]
    pub fn delivery(&self) -> impl Fn(&[u8]) + Send + Sync + use<> {
        let relay = self.sides[0].0.relay.clone();
        move |message: &[u8]| {
            if let Some(relay) = &relay {
                relay.deliver(message);
            }
        }
    }

    /// What ends all waiting, as [`Exchanges::stop`] does.
    #[cfg(feature = "cuda")]
    pub fn stopping(&self) -> impl Fn() + Send + Sync + use<> {
        let peers = self.sides[0].0.peers.clone();
        move || {
            if let Some(peers) = &peers {
                peers.stop();
            }
        }
    }

    #[cfg(any(feature = "cuda", test))]
    pub(super) fn of_sides(sides: Vec<Exchange>) -> Self {
        Self { sides, warning: None, state: Mutex::default() }
    }

    /// That of card `rank`.
    pub fn side(&self, rank: usize) -> &Exchange {
        &self.sides[rank]
    }

    /// Begins an attempt at a piece of work, which `work` tells from others: all cards count from the same
    /// numbers. Whatever they are at work on has been launched on all of them.
    pub fn begin(&self, work: String) {
        let mut state = lock(&self.state);
        let careful = state.warmed_up.get(&work).is_none_or(|times| *times < WARM_UPS);
        let kinds = 0..self.sides[0].0.numbers.len();
        let last = |kind: usize| {
            let numbers = self.sides.iter().map(|side| &side.0.numbers[kind]);
            numbers.map(|number| number.load(Ordering::Relaxed)).max().unwrap_or(0)
        };
        state.work = work;
        state.begun = kinds.map(last).collect();
        for Exchange(side) in &self.sides {
            side.careful.store(careful, Ordering::Relaxed);
            for ((number, begun), last) in side.numbers.iter().zip(&side.begun).zip(&state.begun) {
                number.store(*last, Ordering::Relaxed);
                begun.store(*last, Ordering::Relaxed);
            }
        }
    }

    /// All that is launched so far is of a step that all cards take: where a card fails in the next one, this one is let
    /// run to its end before [all waiting is ended](Exchanges::stop).
    pub fn step_launched(&self) {
        #[cfg(feature = "cuda")]
        for Exchange(side) in &self.sides {
            *lock(&side.step) = Some(side.gpu.fence());
        }
    }

    /// Ends all waiting, because a card has failed: what is computed from then on is of no use.
    pub fn stop(&self) {
        #[cfg(feature = "cuda")]
        for Exchange(side) in &self.sides {
            let step = lock(&side.step).take();
            // What has failed is told where it is read.
            let _ = step.map(|step| step.wait());
        }
        #[cfg(feature = "cuda")]
        for peers in self.peers() {
            peers.stop();
        }
    }

    /// Whether [all waiting was ended](Exchanges::stop).
    pub fn is_stopped(&self) -> bool {
        #[cfg(feature = "cuda")]
        return self.peers().any(|peers| peers.is_stopped());
        #[cfg(not(feature = "cuda"))]
        false
    }

    /// The numbers of the last exchanges of this process's first card.
    pub fn numbers(&self) -> Vec<u32> {
        self.sides[0].0.numbers.iter().map(|number| number.load(Ordering::Relaxed)).collect()
    }

    /// Counts on from the numbers of all processes, which are `numbers` of each, where their attempts have come
    /// to different ends.
    pub fn count_on(&self, numbers: &[Vec<u32>]) {
        for (kind, own) in self.sides[0].0.numbers.iter().enumerate() {
            let last = numbers.iter().filter_map(|all| all.get(kind)).max();
            own.fetch_max(last.copied().unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Ends the attempt, whose work all cards have launched, or which has `failed`.
    ///
    /// # Errors
    ///
    /// When a card has given up waiting for another one.
    pub fn end(&self, failed: bool) -> Result<(), String> {
        let mut state = lock(&self.state);
        if failed {
            self.sides.iter().for_each(|side| side.0.settle());
            #[cfg(feature = "cuda")]
            self.sides.iter().filter_map(|side| side.0.relay.as_ref()).for_each(|it| it.drain());
            // What is copied may be written over from here on.
            #[cfg(feature = "cuda")]
            for Exchange(side) in &self.sides {
                side.giving.drain();
                side.drain_messages();
            }
            self.sides.iter().for_each(|side| side.0.forget_messages());
        }
        let resumed = self.resume();
        if !failed {
            resumed?;
        }
        let number = |kind: usize| self.sides[0].0.numbers[kind].load(Ordering::Relaxed);
        let exchanged = state.begun.iter().enumerate().any(|(kind, begun)| *begun != number(kind));
        if exchanged && !failed {
            let work = std::mem::take(&mut state.work);
            *state.warmed_up.entry(work).or_default() += 1;
        }
        Ok(())
    }

    /// Lets cards wait for each other again where all waiting was ended.
    ///
    /// # Errors
    ///
    /// When it was ended by a card that had given up waiting for another one.
    pub fn resume(&self) -> Result<(), String> {
        #[cfg(feature = "cuda")]
        for peers in self.peers() {
            // Kernels that are at work, or have yet to run, look at the word.
            if peers.is_over() {
                self.sides.iter().for_each(|side| side.0.settle());
                if peers.clear() {
                    return Err(
                        "a card has waited two minutes for the sums of another one".to_owned()
                    );
                }
            }
        }
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn peers(&self) -> impl Iterator<Item = &Arc<Peers>> {
        // All have the same.
        self.sides.iter().take(1).filter_map(|side| side.0.peers.as_ref())
    }
}

/// What cards have put together of their channels, by the pass and the norm: kept for the passes that
/// compute the same again.
#[derive(Debug, Clone, Default)]
pub struct ExchangedSums(Arc<Mutex<HashMap<String, Partials>>>);

/// The images of several cards that norms are taken over, in one pass of one stage.
#[derive(Debug, Clone)]
pub struct Synced {
    exchange: Exchange,
    /// How many cards, from the first on, have images.
    ranks: usize,
    /// The images of all of them, and of this one.
    images: [usize; 2],
    /// Of the stage and the images.
    name: String,
    rows: ExchangedSums,
}

impl Synced {
    /// The stage and images that `name` tells from others: of `images` (of all the first `ranks` cards,
    /// and of this one). `rows` is what is remembered of this step.
    pub fn new(
        exchange: &Exchange,
        name: &str,
        ranks: usize,
        images: [usize; 2],
        rows: &ExchangedSums,
    ) -> Self {
        let (exchange, rows) = (exchange.clone(), rows.clone());
        Self { exchange, ranks, images, name: name.to_owned(), rows }
    }

    /// The pixels of all cards, of which this one has `pixels`.
    pub fn pixels(&self, pixels: usize) -> usize {
        let [all, here] = self.images;
        pixels / here * all
    }

    /// What all cards have put together for `norm` in an earlier pass over these images.
    pub fn recall(&self, norm: &str) -> Option<Partials> {
        lock(&self.rows.0).get(&self.key(norm)).cloned()
    }

    /// Keeps what they have put together.
    pub fn keep(&self, norm: &str, row: Partials) {
        lock(&self.rows.0).insert(self.key(norm), row);
    }

    /// [`Gpu::multiply`] of a kernel that exchanges so many values [among](Exchange::among) the cards that have images,
    /// and writes into `written`. It is given the table behind `arguments`.
    pub(super) fn multiply(
        &self,
        kernel: &Kernel,
        grid: [usize; 3],
        arguments: Arguments<'_>,
        sizes: Sizes,
        (values, written): (usize, &Buffer),
        products: usize,
    ) {
        self.exchange.among(self.ranks, values, sizes, written, |table, sizes| {
            let arguments = [arguments, &[table]].concat();
            self.exchange.0.gpu.multiply(kernel, grid, &arguments, sizes, products);
        });
    }

    fn key(&self, norm: &str) -> String {
        format!("{}/{norm}", self.name)
    }
}

/// The pixels that a norm is taken over, of which this device has `pixels`.
pub(super) fn pixels_of_all(synced: Option<&Synced>, pixels: usize) -> usize {
    synced.map_or(pixels, |synced| synced.pixels(pixels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::DryAllocator;
    use crate::ops::gpu::DryGpu;

    fn dry() -> Gpu {
        Gpu::dry(&DryGpu::new(DryAllocator::default(), true))
    }

    fn number(exchange: &Exchange, kind: usize) -> u32 {
        exchange.0.numbers[kind].load(Ordering::Relaxed)
    }

    #[test]
    fn the_words_of_each_number_of_cards_lie_behind_one_another() {
        let mut end = 0;
        for ranks in 2..=MOST_CARDS {
            assert_eq!(first(ranks), end);
            end += 2 * ranks * SLOTS;
        }
        let flags_and_values = 2 * 4 * (4 * BLOCKS * MOST_CARDS + 4 * BLOCKS * CHUNK);
        assert_eq!(bytes(MOST_CARDS), 8 * end + flags_and_values);
    }

    #[test]
    fn the_sizes_here_are_those_of_the_kernels() {
        let defined = |text: &str, name: &str| -> usize {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
            line.expect("is defined").parse().expect("a number")
        };
        assert_eq!(defined(EXCHANGE, "SLOTS"), SLOTS);
        let of_turns = ["BLOCKS", "CHUNK", "SLOTS_OF_PLACE"].map(|name| defined(TURNS, name));
        assert_eq!(of_turns, [BLOCKS, CHUNK, SLOTS_OF_PLACE]);
        let all_reduce = include_str!("kernels/all_reduce.cu");
        assert!(all_reduce.contains(&format!("constexpr int ROLE = {ROLE};")));
    }

    #[test]
    fn cards_that_have_done_less_count_on_from_the_numbers_of_the_others() {
        let gpu = dry();
        let all = Exchanges::of_sides((0..3).map(|_| Exchange::dry(&gpu, 3)).collect());
        let values = gpu.floats(2 * SLOTS + 4);
        all.begin("batch".to_owned());
        all.side(0).sum(2, &values);
        all.side(1).sum(2, &values);
        for rank in 0..3 {
            all.side(rank).sum(3, &values.range(0..8));
            all.side(rank).sum_over_all(&[gpu.floats(BLOCKS * CHUNK + 1)]);
        }
        let numbers = |rank| [0, 1, 2].map(|kind| number(all.side(rank), kind));
        assert_eq!([numbers(0), numbers(2)], [[3, 1, 2], [0, 1, 2]]);
        all.end(false).expect("nobody waits");
        all.begin("batch".to_owned());
        assert_eq!([numbers(0), numbers(2)], [[3, 1, 2]; 2]);
    }

    #[test]
    fn processes_count_on_from_the_highest_numbers_of_all() {
        let gpu = dry();
        let all = Exchanges::of_sides(vec![Exchange::dry(&gpu, 3)]);
        all.begin("batch".to_owned());
        all.side(0).sum(3, &gpu.floats(2 * SLOTS));
        all.side(0).sum_over_all(&[gpu.floats(8)]);
        assert_eq!(all.numbers()[..3], [0, 2, 1]);
        all.count_on(&[vec![4, 0, 1], all.numbers(), vec![1, 7, 0]]);
        all.begin("batch".to_owned());
        assert_eq!(all.numbers()[..3], [4, 7, 1]);
    }

    #[test]
    fn work_is_done_with_care_until_it_has_been_done_twice() {
        let gpu = dry();
        let all = Exchanges::of_sides(vec![Exchange::dry(&gpu, 2)]);
        let attempt = |work: &str, exchanges: bool, failed: bool| {
            all.begin(work.to_owned());
            if exchanges {
                all.side(0).sum(2, &gpu.floats(4));
            }
            let careful = all.side(0).0.careful.load(Ordering::Relaxed);
            all.end(failed).expect("nobody waits");
            careful
        };
        let found = [
            attempt("batch", true, true),
            attempt("batch", false, false),
            attempt("batch", true, false),
            attempt("batch", true, false),
            attempt("batch", true, false),
            attempt("rest", true, false),
        ];
        assert_eq!(found, [true, true, true, true, false, true]);
    }

    #[test]
    fn pixels_are_those_of_the_images_of_all() {
        let synced =
            Synced::new(&Exchange::dry(&dry(), 2), "stage", 2, [5, 2], &ExchangedSums::default());
        assert_eq!(synced.pixels(2 * 49), 5 * 49);
    }
}
