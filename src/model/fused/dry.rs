//! What a fused stage costs and launches, found by running its program on sizes.

use std::any::Any;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use burn::tensor::DType;

use super::layout::{NORMS, WEIGHTS};
use super::{Back, Layout, Prepared, Program, Records, Run, Value, Values};
use crate::memory::{
    DryAllocator, DryBuffer, DryFlow, DryStage, Footprint, Keep, Pass, Purpose, Target,
    bytes_in_rows,
};
use crate::model::Norm;
use crate::model::fuse::{StagePadding, StageParameters};
use crate::ops::gpu::{
    Buffer, ChannelStats, DeviceMap, DryGpu, Gpu, Images, Kernel, Kernels, Over, Synced, Work,
};
#[cfg(test)]
use crate::ops::gpu::{Exchange, ExchangedSums};

/// A fused stage on sizes alone.
pub trait DryFused: DryStage {
    /// What the stage costs, where there is nothing else in its memory.
    fn footprint(&self) -> Footprint;

    /// The kernels that it launches in training and in evaluation.
    fn kernels(&self) -> Vec<Kernel>;

    /// The kernels launched in training by one of two cards that have an equal share of the images,
    /// where `rows` are remembered; with the backward pass, or without.
    #[cfg(test)]
    fn of_two_cards(&self, rows: &ExchangedSums, back: bool) -> Vec<Kernel>;
}

/// A program in whole steps on sizes alone: as `ProgramStage` is on a device.
pub(super) struct DryProgram<P> {
    prepared: Prepared<P>,
    shape: [usize; 4],
    parameters: [Buffer; 3],
    dry: Arc<DryGpu>,
}

/// Images as the model is given them. Those of a batch that stays on the device lie elsewhere.
#[derive(Clone)]
struct Given(Option<DryBuffer>);

impl<P: Program> DryProgram<P> {
    /// Of a program with these parameters, for an input of `shape`, with memory from `memory`.
    pub fn new(
        program: (P, Norm),
        parameters: &StageParameters,
        shape: [usize; 4],
        on: &Target,
        memory: &DryAllocator,
    ) -> Self {
        let padding = parameters.padding.as_deref();
        let layout = Layout::new(parameters.shapes(), &program.0.forms(), padding);
        let dry = DryGpu::new(memory.clone(), on.hopper);
        let kernels = Kernels::new(Gpu::dry(&dry), on.precision.element());
        let parameters = [0, 1, 2].map(|kind| kernels.gpu().floats(layout.length(kind)));
        let prepared = Prepared::new(program, kernels, layout);
        Self { prepared, shape: in_rows(shape, padding), parameters, dry }
    }

    fn over(&self) -> Over {
        self.prepared.over(self.shape[0])
    }

    fn values(&self, kernels: &Kernels, trains: bool) -> Arc<Values> {
        self.prepared.values(kernels, trains, |kind| self.parameters[kind].clone())
    }

    fn records(&self) -> Option<Records> {
        self.prepared.layout.records(&self.prepared.kernels)
    }

    /// A forward pass that stands for itself.
    fn run(
        &self,
        [trains, keeps]: [bool; 2],
        records: Option<&Records>,
        synced: Option<&Synced>,
        input: Value,
    ) -> (Value, Option<P::Saved>) {
        let Prepared { program, kernels: own, tables, .. } = &self.prepared;
        let (kernels, over, pass) = (&own.of_a_pass(), self.over(), &pass(trains));
        let values = &self.values(kernels, true);
        let run = Run { kernels, values, records, over, keeps, synced, pass };
        let (output, kept) = program.forward(&run, input);
        (tables.output(own, output, self.shape[0]), kept)
    }

    /// A backward pass: the gradient of the input, and those of the parameters.
    fn back(
        &self,
        synced: Option<&Synced>,
        kept: Option<P::Saved>,
        gradient: Value,
    ) -> (Option<DeviceMap>, [Buffer; 2]) {
        let Prepared { program, kernels: own, layout, tables, .. } = &self.prepared;
        let (kernels, kept) = (&own.of_a_pass(), kept.expect("was to be kept"));
        let values = &self.values(kernels, true);
        let room = layout.room(own);
        let back = Back { kernels, values, room: &room, over: self.over(), synced };
        let gradient = tables.gradient(kernels, gradient, self.shape[0]);
        let found = program.backward(&back, kept, gradient);
        (found, tables.gradients(own, room))
    }

    /// Room for the gradient of `output`, as the stage behind leaves it.
    fn gradient_of(&self, output: &Value) -> Value {
        let kernels = &self.prepared.kernels.of_a_pass();
        match output {
            Value::Map(map) => {
                let (shape, room) = (map.shape(), map.data.stride());
                let mut gradient = Value::map(kernels, shape, room, None).into_map();
                let sums = || kernels.sums(map.data.channels(), self.over());
                gradient.pending = self.prepared.program.takes_sums().then(sums);
                Value::Map(gradient)
            }
            Value::Features(features) => Value::Features(kernels.gpu().floats(features.len())),
            Value::Images(_) => panic!("no stage makes images"),
        }
    }

    /// Bytes that putting the input aside takes beside it.
    fn checkpoint_bytes(&self, input: &Value) -> u64 {
        let Value::Map(map) = input else { return 0 };
        let aside = self.prepared.program.checkpoint(&self.prepared.kernels, map);
        aside.map_or(0, |aside| bytes(&Value::Map(aside)))
    }

    /// `given` as the program takes them: without gaps between rows.
    fn images(&self, Given(given): Given) -> Value {
        let (storage, length) = (self.prepared.kernels.storage(), self.shape.iter().product());
        match given {
            // Nothing is copied.
            Some(memory) if memory.bytes() == (length * storage.size()) as u64 => {
                let buffer = Buffer::dry(memory, storage, length);
                Value::Images(Images { buffer, shape: self.shape })
            }
            given => {
                let images = self.prepared.input(self.shape);
                given.iter().for_each(DryBuffer::note_use);
                images
            }
        }
    }
}

impl<P: Program> DryFused for DryProgram<P> {
    fn footprint(&self) -> Footprint {
        let (allocator, input) = (self.dry.allocator(), || self.prepared.input(self.shape));
        let records = self.records();
        let forward =
            |keeps: bool, input: Value| self.run([true, keeps], records.as_ref(), None, input);
        // What a first pass makes and keeps for later ones counts among what stands.
        forward(false, input());
        let standing = allocator.live();

        let given = input();
        allocator.restart();
        self.dry.take_work();
        let (output, _) = forward(false, given.clone());
        let forward_workspace = allocator.peak() - allocator.live();
        let Work { flops: forward_flops, traffic: forward_traffic } = self.dry.take_work();
        drop((given, output));

        let input = input();
        allocator.restart();
        let (output, kept) = forward(true, input.clone());
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
        let length = |kind: usize| self.prepared.layout.length(kind);
        let parameters: [u64; 2] = [WEIGHTS, NORMS].map(|kind| 4 * length(kind) as u64);
        let parameter_gradients = parameters.iter().sum::<u64>();
        allocator.restart();
        self.dry.take_work();
        let start = allocator.live();
        let found = self.back(None, kept, gradient).0.map(Value::Map);
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
            // The caller counts the parameters.
            standing: standing - self.parameters[WEIGHTS].counted().bytes() - parameters[1],
            largest_parameter: parameters.into_iter().max().unwrap_or(0),
            largest_array: allocator.largest(),
            output: size,
            output_in_input: in_input,
            checkpoint: self.checkpoint_bytes(&input),
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

    fn kernels(&self) -> Vec<Kernel> {
        let input = || self.prepared.input(self.shape);
        let records = self.records();
        self.run([false, false], None, None, input());
        let (output, kept) = self.run([true, true], records.as_ref(), None, input());
        self.back(None, kept, self.gradient_of(&output));
        self.dry.kernels()
    }

    #[cfg(test)]
    fn of_two_cards(&self, rows: &ExchangedSums, back: bool) -> Vec<Kernel> {
        let exchange = Exchange::dry(self.prepared.kernels.gpu(), 2);
        let images = self.shape[0];
        let synced = Synced::new(&exchange, "stage", 2, [2 * images, images], rows);
        let (synced, records) = (Some(&synced), self.records());
        let synced = synced.filter(|_| self.over() == Over::Batch);
        let input = self.prepared.input(self.shape);
        let (output, kept) = self.run([true, true], records.as_ref(), synced, input);
        if back {
            self.back(synced, kept, self.gradient_of(&output));
        }
        self.dry.kernels()
    }
}

impl<P: Program> DryStage for DryProgram<P> {
    fn input(&self, images: Option<DryBuffer>) -> DryFlow {
        if !P::TAKES_IMAGES {
            return Rc::new(self.prepared.input(self.shape));
        }
        let storage = self.prepared.kernels.storage();
        let bytes = || bytes_in_rows(self.shape, storage.size());
        let rounded = || (storage != DType::F32).then(|| self.dry.allocator().take(bytes()));
        Rc::new(Given(images.or_else(rounded)))
    }

    fn forward(
        &self,
        input: DryFlow,
        keeps: Keep,
        trains: bool,
        first: bool,
    ) -> (DryFlow, Option<Box<dyn Any>>) {
        let Prepared { program, kernels: own, tables, .. } = &self.prepared;
        let (kernels, over, pass) = (&own.of_a_pass(), self.over(), &pass(trains));
        let values = &self.values(kernels, trains);
        let all_records = if first && trains { self.records() } else { None };
        let (records, keeps) = (all_records.as_ref(), keeps == Keep::All);
        let run = Run { kernels, values, records, over, keeps, synced: None, pass };
        let input = match input.downcast::<Given>() {
            Ok(given) => self.images(Rc::unwrap_or_clone(given)),
            Err(input) => value(input),
        };
        let (output, kept) = program.forward(&run, input);
        let output = tables.output(own, output, self.shape[0]);
        drop(all_records.map(|records| tables.statistics(own, records)));
        (Rc::new(output), kept.map(|kept| Box::new(kept) as Box<dyn Any>))
    }

    fn checkpoint(&self, input: &DryFlow) -> DryFlow {
        let Prepared { program, kernels, .. } = &self.prepared;
        let aside = match input.downcast_ref::<Value>() {
            Some(Value::Map(map)) => program.checkpoint(&kernels.of_a_pass(), map),
            _ => None,
        };
        aside.map_or_else(|| Rc::clone(input), |aside| Rc::new(Value::Map(aside)))
    }

    fn backward(&self, kept: Box<dyn Any>, gradient: DryFlow) -> (Option<DryFlow>, Vec<DryBuffer>) {
        let kept = kept.downcast::<P::Saved>().unwrap_or_else(|_| panic!("another stage kept it"));
        let (found, all) = self.back(None, Some(*kept), value(gradient));
        let found = found.map(|found| Rc::new(Value::Map(found)) as DryFlow);
        (found, all.iter().map(|all| all.counted().clone()).collect())
    }

    fn parameters(&self) -> Vec<u64> {
        [WEIGHTS, NORMS].map(|kind| self.parameters[kind].counted().bytes()).to_vec()
    }

    fn change(&self) {
        self.prepared.forget_values();
    }
}

/// A pass that draws nothing that counts.
fn pass(trains: bool) -> Pass {
    Pass::new(if trains { Purpose::First } else { Purpose::Evaluate }, 0, 0, 0)
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
            let length = memory.bytes() as usize / DType::F32.size();
            Value::Features(Buffer::dry(Rc::unwrap_or_clone(memory), DType::F32, length))
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
