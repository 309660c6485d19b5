use burn::tensor::{DType, Device, Tensor};
use proptest::prelude::*;

use super::*;
use crate::choice::NoSettings;
use crate::memory::{
    Activation, Chain, CheckpointPlan, DiskOffloadConfig, Gradients, Keep, Parameter, Pass, Saved,
    Schedule, Stage, Statistics, add_gradient, executor,
};
use crate::parallel::Part;

/// y = scale·x + x², which keeps x and, of no use but to be moved, y.
struct Curve {
    name: String,
    scale: Tensor<1>,
}

struct Kept {
    input: Tensor<4>,
    _output: Tensor<4>,
}

impl Stage for Curve {
    fn name(&self) -> &str {
        &self.name
    }

    fn forward(
        &self,
        input: Activation,
        keep: Keep,
        _pass: &Pass,
        _statistics: &mut Statistics,
    ) -> (Activation, Option<Saved>) {
        let input = input.into_map();
        let output = input.clone() * self.scale.clone().reshape([1, 1, 1, 1])
            + input.clone() * input.clone();
        let kept = Kept { input, _output: output.clone() };
        (Activation::Map(output), (keep == Keep::All).then(|| Saved(Box::new(kept))))
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: Activation,
        gradients: &mut Gradients,
    ) -> Option<Activation> {
        let Kept { input, .. } = *saved.open::<Kept>(&self.name);
        let gradient = gradient.into_map();
        add_gradient(gradients, &self.name, (gradient.clone() * input.clone()).sum());
        let slope = input.mul_scalar(2.0) + self.scale.clone().reshape([1, 1, 1, 1]);
        Some(Activation::Map(gradient * slope))
    }

    fn moves_saved(&self) -> bool {
        true
    }

    fn offload_tensors<'a>(&self, saved: &'a mut Saved) -> Vec<OffloadTensor<'a>> {
        let kept = saved.look::<Kept>(&self.name);
        vec![OffloadTensor::Map(&mut kept.input), OffloadTensor::Map(&mut kept._output)]
    }

    fn parameters(&self) -> Vec<Parameter> {
        let (name, value) = (self.name.clone(), self.scale.clone());
        vec![Parameter { name, shape: vec![1], trained: true, value }]
    }

    fn map_parameters(&mut self, change: &mut dyn FnMut(&str, Tensor<1>) -> Tensor<1>) {
        self.scale = change(&self.name, self.scale.clone());
    }
}

fn wave<const D: usize>(shape: [usize; D], speed: f64) -> Tensor<D> {
    crate::wave::wave(shape, speed, &Device::flex())
}

fn chain(stages: usize) -> Chain {
    let stage = |index: usize| -> Box<dyn Stage> {
        let scale = wave([1], 0.3).add_scalar(index as f32 * 0.1 + 0.2);
        Box::new(Curve { name: format!("curve{index}"), scale })
    };
    Chain::of((0..stages).map(stage).collect())
}

fn host() -> Store {
    Store::open(&OffloadConfig::Host(NoSettings {})).expect("opens")
}

fn disk(folder: &tempfile::TempDir) -> Store {
    let path = folder.path().to_owned();
    Store::open(&OffloadConfig::Disk(DiskOffloadConfig { path })).expect("opens")
}

fn bits<const D: usize>(tensor: &Tensor<D>) -> Vec<u32> {
    tensor.clone().cast(DType::F32).into_data().iter::<f32>().map(f32::to_bits).collect()
}

#[test]
fn what_was_sent_is_gone_until_it_lands_bit_for_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    for store in [host(), disk(&folder)] {
        let (mut map, mut row) = (wave([2, 3, 5, 7], 0.7), wave([11], 1.3).cast(DType::F16));
        let before = (bits(&map), bits(&row));
        let mut ticket = store
            .send(vec![OffloadTensor::Map(&mut map), OffloadTensor::Flat(&mut row)])
            .expect("leaves");
        assert_eq!((map.dims(), row.dims()), ([2, 3, 5, 7], [11]));
        assert!(bits(&map) != before.0 && bits(&row) != before.1, "they are away");
        store.fetch(&mut ticket).expect("begins");
        let tensors = vec![OffloadTensor::Map(&mut map), OffloadTensor::Flat(&mut row)];
        store.restore(ticket, tensors).expect("lands");
        assert_eq!((bits(&map), bits(&row), row.dtype()), (before.0, before.1, DType::F16));
    }
}

#[test]
fn what_was_sent_and_dropped_leaves_room_on_the_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = disk(&folder);
    for _ in 0..3 {
        let mut map = wave([1, 1, 64, 64], 0.7);
        drop(store.send(vec![OffloadTensor::Map(&mut map)]).expect("leaves"));
    }
    let shelf = store.0.as_ref().expect("moves things");
    for item in shelf.leaving.take().iter().filter_map(Weak::upgrade) {
        item.wait_until_left().expect("leaves");
    }
    let held = || shelf.disk.as_ref().expect("is on a disk").held();
    let dropped = std::iter::repeat_with(held).take(1000).any(|held| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        held == 0
    });
    assert!(dropped, "{} bytes are held", held());
}

#[test]
fn a_full_disk_ends_the_step_with_an_error() {
    let store = host();
    let full = disk::Disk::full();
    let store = Store(store.0.map(|shelf| Shelf { disk: Some(full), ..shelf }));
    let tree = CheckpointPlan::keep_all(4).offloaded(&[true; 4]);
    let chain = chain(4);
    let images = || Activation::Map(wave([1, 1, 4, 4], 0.7));
    let outcome = executor::train(
        &store,
        &chain,
        &Schedule::of_plan(&tree, 4, 1),
        executor::StepKey::alone(1, 0, &[Part::alone(0..1)]),
        |_| images(),
        |_, outputs| outputs,
    );
    let error = outcome.map(drop).expect_err("is full");
    assert!(matches!(error, OffloadError::Full { .. }), "{error}");
}

fn gradients(
    chain: &Chain,
    tree: &CheckpointPlan,
    parts: usize,
    store: &Store,
) -> Vec<(String, Vec<u32>)> {
    let result = executor::train(
        store,
        chain,
        &Schedule::of_plan(tree, chain.stages().len(), parts),
        executor::StepKey::alone(1, 0, &vec![Part::alone(0..1); parts]),
        |part| Activation::Map(wave([2, 1, 3, 3], 0.7 + part as f64)),
        |_, outputs| Activation::Map(outputs.into_map().mul_scalar(0.5)),
    );
    let gradients = result.expect("moves away and back").gradients;
    gradients.iter().map(|(name, value)| (name.to_owned(), bits(value))).collect()
}

fn trees(stages: usize) -> BoxedStrategy<CheckpointPlan> {
    let keep = |rest: Option<CheckpointPlan>, offload| CheckpointPlan::Keep {
        offload,
        rest: rest.map(Box::new),
    };
    if stages == 1 {
        return any::<bool>().prop_map(move |offload| keep(None, offload)).boxed();
    }
    let kept = (trees(stages - 1), any::<bool>());
    let kept = kept.prop_map(move |(rest, offload)| keep(Some(rest), offload));
    let aside = (1..stages).prop_flat_map(move |count| {
        let parts = (trees(stages - count), trees(count), any::<bool>());
        parts.prop_map(move |(later, again, offload)| CheckpointPlan::Checkpoint {
            count,
            offload,
            later: Box::new(later),
            again: Box::new(again),
        })
    });
    prop_oneof![kept, aside].boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn whatever_is_moved_away_gives_the_same_gradients(tree in trees(5), parts in 1_usize..4) {
        let folder = tempfile::tempdir().expect("a folder");
        let chain = chain(5);
        let plain = gradients(&chain, &CheckpointPlan::keep_all(5), parts, &Store::nowhere());
        prop_assert_eq!(plain.len(), 5);
        for store in [host(), disk(&folder)] {
            prop_assert_eq!(&gradients(&chain, &tree, parts, &store), &plain);
        }
    }
}
