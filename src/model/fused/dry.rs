//! What a fused stage costs and launches, found by running its program on sizes.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::layout::{NORMS, WEIGHTS};
use super::program::{layout, over};
use super::{Back, Layout, Program, Records, Run, Tables, Value, Values};
use crate::memory::{
    DryAllocator, DryBuffer, DryFlow, DryStage, Footprint, Keep, Pass, Target, bytes_in_rows,
};
use crate::model::fuse::{StagePadding, StageParameters};
use crate::ops::gpu::{
    Buffer, ChannelStats, DeviceMap, DryGpu, Gpu, Images, Kernel, Kernels, Storage, Work,
};
#[cfg(test)]
use crate::ops::gpu::{Exchange, ExchangedSums, Over, Synced};

/// A program on a GPU that only counts.
pub(super) struct DryRun<'a, P> {
    program: &'a P,
    dry: std::sync::Arc<DryGpu>,
    kernels: Kernels,
    layout: Layout,
    tables: Tables,
    values: Values,
    records: Option<Records>,
    padding: Option<&'a StagePadding>,
    /// The norms' parameters and running statistics, of which `values` may be copies.
    _held: [Buffer; 2],
}

impl<'a, P: Program> DryRun<'a, P> {
    /// Of a program with these parameters.
    pub fn new(program: &'a P, parameters: &'a StageParameters, on: &Target) -> Self {
        let dry = DryGpu::new(DryAllocator::default(), on.hopper);
        let kernels = Kernels::new(Gpu::dry(&dry), on.precision.element());
        let padding = parameters.padding.as_deref();
        let layout = layout(program, parameters.shapes(), padding);
        let tables = layout.tables(&kernels);
        let all = [0, 1, 2].map(|kind| kernels.gpu().floats(layout.length(kind)));
        let values = layout.values(&kernels, &tables, |kind| all[kind].clone());
        let records = layout.records(&kernels);
        let [_, norms, running] = all;
        let _held = [norms, running];
        Self { program, dry, kernels, layout, tables, values, records, padding, _held }
    }

    /// An input of `shape` as the stage before leaves it.
    fn input(&self, shape: [usize; 4]) -> Value {
        self.program.input(&self.kernels, in_rows(shape, self.padding))
    }

    fn forward(
        &self,
        [trains, keeps]: [bool; 2],
        images: usize,
        input: Value,
    ) -> (Value, Option<P::Saved>) {
        let (kernels, values) = (&self.kernels.of_a_pass(), &self.values);
        let records = self.records.as_ref().filter(|_| trains);
        let pass = &Pass::evaluation();
        let over = over(self.program.norm(), images);
        let run = Run { kernels, values, records, trains, over, keeps, synced: None, pass };
        let (output, kept) = self.program.forward(&run, input);
        (self.tables.output(&self.kernels, output, images), kept)
    }

    /// The kernels launched in training and in evaluation on an input of `shape`.
    pub fn kernels(&self, shape: [usize; 4]) -> Vec<Kernel> {
        let input = || self.input(shape);
        self.forward([false, false], shape[0], input());
        let (output, kept) = self.forward([true, true], shape[0], input());
        self.backward(kept, shape[0], self.gradient_of(&output));
        self.dry.kernels()
    }

    /// The kernels launched in training by one of two cards that have an equal share of the images of
    /// `shape`, where `rows` are remembered; with the backward pass, or without.
    #[cfg(test)]
    pub fn of_two_cards(&self, shape: [usize; 4], rows: &ExchangedSums, back: bool) -> Vec<Kernel> {
        let exchange = Exchange::dry(self.kernels.gpu(), 2);
        let synced = Synced::new(&exchange, "stage", 2, [2 * shape[0], shape[0]], rows);
        let (kernels, values, synced) = (&self.kernels.of_a_pass(), &self.values, Some(&synced));
        let records = self.records.as_ref();
        let pass = &Pass::evaluation();
        let over = over(self.program.norm(), shape[0]);
        let synced = synced.filter(|_| over == Over::Batch);
        let run = Run { kernels, values, records, trains: true, over, keeps: true, synced, pass };
        let (output, kept) = self.program.forward(&run, self.input(shape));
        if back {
            let gradient = self.gradient_of(&output);
            let room = self.layout.room(&self.kernels);
            let back = Back { kernels, values, room: &room, over, synced };
            self.program.backward(&back, kept.expect("was to be kept"), gradient);
        }
        self.dry.kernels()
    }

    fn backward(
        &self,
        kept: Option<P::Saved>,
        images: usize,
        gradient: Value,
    ) -> Option<DeviceMap> {
        let room = self.layout.room(&self.kernels);
        let kernels = &self.kernels.of_a_pass();
        let over = over(self.program.norm(), images);
        let back = Back { kernels, values: &self.values, room: &room, over, synced: None };
        let gradient = self.tables.gradient(kernels, gradient, images);
        let found = self.program.backward(&back, kept.expect("was to be kept"), gradient);
        self.tables.gradients(&self.kernels, room);
        found
    }

    /// What the stage costs for an input of `shape`.
    pub fn footprint(&self, shape: [usize; 4]) -> Footprint {
        let allocator = self.dry.allocator();
        // What a first pass makes and keeps for later ones counts among what stands.
        let images = shape[0];
        self.forward([true, false], images, self.input(shape));
        let standing = allocator.live();

        let input = self.input(shape);
        allocator.restart();
        self.dry.take_work();
        let (output, _) = self.forward([true, false], images, input.clone());
        let forward_workspace = allocator.peak() - allocator.live();
        let Work { flops: forward_flops, traffic: forward_traffic } = self.dry.take_work();
        drop((input, output));

        let input = self.input(shape);
        allocator.restart();
        let (output, kept) = self.forward([true, true], images, input.clone());
        let in_input = counted(&output).is(counted(&input));
        let (given, size) = (bytes(&input), bytes(&output));
        let shared = if in_input { given } else { given + size };
        let saved = allocator.live() - standing - shared;
        let saving_workspace = allocator.peak() - allocator.live();
        let others = if in_input { 2 } else { 1 };
        let saves_input = !in_input && counted(&input).holders() > 1;
        let saves_output = counted(&output).holders() > others;

        // When it goes back, the stage behind it holds its output no more.
        let gradient = self.gradient_of(&output);
        let of_output = counted(&gradient).number();
        drop(output);
        let parameters: [u64; 2] = [WEIGHTS, NORMS].map(|kind| 4 * self.layout.length(kind) as u64);
        let parameter_gradients = parameters.iter().sum::<u64>();
        allocator.restart();
        self.dry.take_work();
        let start = allocator.live();
        let found = self.backward(kept, images, gradient).map(Value::Map);
        let Work { flops: backward_flops, traffic: backward_traffic } = self.dry.take_work();
        let gradient_in_gradient =
            found.as_ref().is_some_and(|found| counted(found).number() == of_output);
        let gradient = match &found {
            Some(found) if !gradient_in_gradient => bytes(found),
            _ => 0,
        };
        let backward_peak = allocator.peak() - start;
        drop(found);
        Footprint {
            // The caller counts the parameters. Of weights only the packed forms are held here.
            standing: standing - parameters[1],
            largest_parameter: parameters.into_iter().max().unwrap_or(0),
            largest_array: allocator.largest(),
            output: size,
            output_in_input: in_input,
            checkpoint: self.checkpoint(&input),
            saved,
            saves_input,
            saves_output,
            moves_saved: P::KEEPS,
            forward_workspace,
            saving_workspace,
            gradient,
            gradient_in_gradient,
            backward_peak,
            parameter_gradients,
            layers: 1.0,
            forward_flops,
            backward_flops,
            forward_traffic,
            backward_traffic,
        }
    }

    /// Room for the gradient of `output`, as the stage behind leaves it.
    fn gradient_of(&self, output: &Value) -> Value {
        let kernels = &self.kernels.of_a_pass();
        match output {
            Value::Map(map) => {
                let (shape, room) = (map.shape(), map.data.stride());
                let mut gradient = Value::map(kernels, shape, room, None).into_map();
                let over = over(self.program.norm(), shape[0]);
                let sums = || kernels.sums(map.data.channels(), over);
                gradient.pending = self.program.takes_sums().then(sums);
                Value::Map(gradient)
            }
            Value::Features(features) => Value::Features(kernels.gpu().floats(features.len())),
            Value::Images(_) => panic!("no stage makes images"),
        }
    }

    /// Bytes that putting the input aside takes beside it.
    fn checkpoint(&self, input: &Value) -> u64 {
        let Value::Map(map) = input else { return 0 };
        let aside = self.program.checkpoint(&self.kernels, map);
        aside.map_or(0, |aside| bytes(&Value::Map(aside)))
    }
}

/// A program in whole steps on sizes alone: as `ProgramStage` is on a device.
pub(super) struct DryProgram<P> {
    program: P,
    kernels: Kernels,
    layout: Layout,
    shape: [usize; 4],
    parameters: [Buffer; 3],
    tables: Tables,
    /// Made again when a parameter has changed.
    values: RefCell<Option<Rc<Values>>>,
    memory: DryAllocator,
    /// Of the images that the model is given.
    storage: Storage,
}

/// Images as the model is given them. Those of a batch that stays on the device lie elsewhere.
#[derive(Clone)]
struct Given(Option<DryBuffer>);

impl<P: Program> DryProgram<P> {
    /// Of a program with these parameters, for an input of `shape`, with memory from `memory`.
    pub fn new(
        program: P,
        parameters: &StageParameters,
        shape: [usize; 4],
        on: &Target,
        memory: &DryAllocator,
    ) -> Self {
        let padding = parameters.padding.as_deref();
        let layout = layout(&program, parameters.shapes(), padding);
        let shape = in_rows(shape, padding);
        let gpu = Gpu::dry(&DryGpu::new(memory.clone(), on.hopper));
        let kernels = Kernels::new(gpu, on.precision.element());
        let parameters = [0, 1, 2].map(|kind| kernels.gpu().floats(layout.length(kind)));
        let tables = layout.tables(&kernels);
        let (memory, values) = (memory.clone(), RefCell::default());
        let storage = on.precision.element().storage();
        Self { program, kernels, layout, shape, parameters, tables, values, memory, storage }
    }

    /// `given` as the program takes them: without gaps between rows.
    fn images(&self, Given(given): Given) -> Value {
        let length = self.shape.iter().product();
        match given {
            // Nothing is copied.
            Some(memory) if memory.bytes() == (length * self.storage.bytes()) as u64 => {
                let buffer = Buffer::dry(memory, self.storage, length);
                Value::Images(Images { buffer, shape: self.shape })
            }
            given => {
                let images = self.program.input(&self.kernels, self.shape);
                given.iter().for_each(DryBuffer::note_use);
                images
            }
        }
    }

    fn values(&self, kernels: &Kernels, trains: bool) -> Rc<Values> {
        let mut known = self.values.borrow_mut();
        if let Some(values) = &*known {
            return Rc::clone(values);
        }
        let of_kind = |kind: usize| self.parameters[kind].clone();
        let values = Rc::new(self.layout.values(kernels, &self.tables, of_kind));
        *known = trains.then(|| Rc::clone(&values));
        values
    }
}

impl<P: Program> DryStage for DryProgram<P> {
    fn input(&self, images: Option<DryBuffer>) -> DryFlow {
        if !P::TAKES_IMAGES {
            return Rc::new(self.program.input(&self.kernels, self.shape));
        }
        let rounds = self.storage != Storage::F32;
        let bytes = || bytes_in_rows(self.shape, self.storage.bytes());
        let rounded = || rounds.then(|| self.memory.take(bytes()));
        Rc::new(Given(images.or_else(rounded)))
    }

    fn forward(
        &self,
        input: DryFlow,
        keeps: Keep,
        trains: bool,
        first: bool,
    ) -> (DryFlow, Option<Box<dyn Any>>) {
        let kernels = &self.kernels.of_a_pass();
        let values = self.values(kernels, trains);
        let records = if first && trains { self.layout.records(&self.kernels) } else { None };
        let run = Run {
            kernels,
            values: &values,
            records: records.as_ref(),
            trains,
            over: over(self.program.norm(), self.shape[0]),
            keeps: keeps == Keep::All,
            synced: None,
            pass: &Pass::evaluation(),
        };
        let input = match input.downcast::<Given>() {
            Ok(given) => self.images(Rc::unwrap_or_clone(given)),
            Err(input) => value(input),
        };
        let (output, kept) = self.program.forward(&run, input);
        let output = self.tables.output(&self.kernels, output, self.shape[0]);
        drop(records.map(|records| self.tables.statistics(&self.kernels, records)));
        (Rc::new(output), kept.map(|kept| Box::new(kept) as Box<dyn Any>))
    }

    fn checkpoint(&self, input: &DryFlow) -> DryFlow {
        let aside = match input.downcast_ref::<Value>() {
            Some(Value::Map(map)) => self.program.checkpoint(&self.kernels.of_a_pass(), map),
            _ => None,
        };
        aside.map_or_else(|| Rc::clone(input), |aside| Rc::new(Value::Map(aside)))
    }

    fn backward(&self, kept: Box<dyn Any>, gradient: DryFlow) -> (Option<DryFlow>, Vec<DryBuffer>) {
        let kernels = &self.kernels.of_a_pass();
        let values = self.values(kernels, true);
        let kept = kept.downcast::<P::Saved>().unwrap_or_else(|_| panic!("another stage kept it"));
        let room = self.layout.room(&self.kernels);
        let over = over(self.program.norm(), self.shape[0]);
        let back = Back { kernels, values: &values, room: &room, over, synced: None };
        let gradient = self.tables.gradient(kernels, value(gradient), self.shape[0]);
        let found = self.program.backward(&back, *kept, gradient);
        let found = found.map(|found| Rc::new(Value::Map(found)) as DryFlow);
        let all = self.tables.gradients(&self.kernels, room);
        (found, all.iter().map(|all| all.counted().clone()).collect())
    }

    fn parameters(&self) -> Vec<u64> {
        [WEIGHTS, NORMS].map(|kind| self.parameters[kind].counted().bytes()).to_vec()
    }

    fn change(&self) {
        self.values.take();
    }
}

/// `shape` with the channels that rows have of it, zeros among them.
fn in_rows(shape: [usize; 4], padding: Option<&StagePadding>) -> [usize; 4] {
    let [batch, channels, height, width] = shape;
    [batch, padding.map_or(channels, |padding| padding.input.room()), height, width]
}

/// What a stage before or behind gives: where that is of another kind, it is features.
fn value(flow: DryFlow) -> Value {
    match flow.downcast::<Value>() {
        Ok(value) => Rc::unwrap_or_clone(value),
        Err(other) => {
            let memory = other.downcast::<DryBuffer>();
            let memory = memory.unwrap_or_else(|_| panic!("a stage was given what is no memory"));
            let length = memory.bytes() as usize / Storage::F32.bytes();
            Value::Features(Buffer::dry(Rc::unwrap_or_clone(memory), Storage::F32, length))
        }
    }
}

fn counted(value: &Value) -> &DryBuffer {
    value.elements().counted()
}

/// Bytes of all memory that `value` holds.
fn bytes(value: &Value) -> u64 {
    let mut all = vec![value.elements()];
    if let Value::Map(DeviceMap { stats, pending, .. }) = value {
        all.extend(stats.iter().flat_map(ChannelStats::buffers));
        all.extend(pending.iter().flat_map(|sums| sums.buffers()));
    }
    // Several of them may lie in one piece.
    let pieces = all.into_iter().map(Buffer::counted).map(|piece| (piece.number(), piece.bytes()));
    pieces.collect::<BTreeMap<_, _>>().into_values().sum()
}
