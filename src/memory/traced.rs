//! A stage from any Burn module: its backward pass is Burn's autodiff on that module alone.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;

use super::stage::Statistics;
use super::{Activation, Gradients, Keep, Parameter, Pass, Saved, Stage};

/// A Burn module that maps one activation to another.
///
/// It holds its parameters without autodiff; running statistics are parameters that require no
/// gradient.
pub trait Forward: Module {
    /// Runs the module; it must not change itself, and draws all randomness from `pass`.
    fn forward(&self, input: Activation, pass: &Pass) -> Activation;
}

/// A stage that runs a Burn module.
///
/// Forward makes the input and the parameters fresh leaves; backward is the vector-Jacobian product
/// from the output to them. It is right for every module, and what hand-written stages are held to.
#[derive(Debug)]
pub struct Traced<M> {
    name: String,
    naming: Naming,
    module: M,
    /// Whether the gradient of the input is computed.
    asked: bool,
}

/// What [`Traced`] keeps: the recorded graph from the leaves to the output.
pub struct Recording<M> {
    input: Activation,
    /// Whether the gradient of the input is computed.
    asked: bool,
    module: M,
    output: Activation,
}

impl<M: Forward + 'static> Traced<M> {
    /// A stage called `name`. A parameter's name is its path in the module, with the element `k` of
    /// a list `field` called `field{k + 1}` as torchvision does; then the first pair of `renames`
    /// whose left side the path starts with replaces that start by the right side.
    pub fn new(name: &str, renames: &[(&str, &str)], module: M) -> Self {
        let renames = renames.iter().map(|(from, to)| ((*from).into(), (*to).into())).collect();
        Self { name: name.to_owned(), naming: Naming { renames }, module, asked: true }
    }

    /// As the first of a chain: nobody asks for the gradient of its input.
    pub fn first(self) -> Self {
        Self { asked: false, ..self }
    }
}

impl<M: Forward + 'static> Stage for Traced<M> {
    fn name(&self) -> &str {
        &self.name
    }

    fn forward(
        &self,
        input: Activation,
        keep: Keep,
        pass: &Pass,
        statistics: &mut Statistics,
    ) -> (Activation, Option<Saved>) {
        match keep {
            Keep::Nothing => (self.run(input, pass, statistics), None),
            Keep::All => {
                let (output, recording) = self.record(input, self.asked, pass, statistics);
                (output, Some(Saved(Box::new(recording))))
            }
        }
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: Activation,
        gradients: &mut Gradients,
    ) -> Activation {
        let recording = *saved.open::<Recording<M>>(&self.name);
        let found = self.back(recording, gradient, gradients);
        found.unwrap_or(Activation::Outputs(Vec::new()))
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut lister = Lister { walk: Walk::new(&self.naming), parameters: Vec::new() };
        self.module.visit(&mut lister);
        lister.parameters
    }

    fn map_parameters(&mut self, change: &mut dyn FnMut(&str, Tensor<1>) -> Tensor<1>) {
        let mut mapper = Changer { walk: Walk::new(&self.naming), change };
        self.module = self.module.clone().map(&mut mapper);
    }
}

impl<M: Forward + 'static> Traced<M> {
    /// The module.
    pub fn module(&self) -> &M {
        &self.module
    }

    /// Runs the module without autodiff.
    pub fn run(&self, input: Activation, pass: &Pass, statistics: &mut Statistics) -> Activation {
        let output = self.module.forward(input, pass);
        self.collect_reported(pass, statistics);
        output
    }

    /// Runs the module and records the graph; the gradient of the input is `asked` for or not.
    pub fn record(
        &self,
        input: Activation,
        asked: bool,
        pass: &Pass,
        statistics: &mut Statistics,
    ) -> (Activation, Recording<M>) {
        let input = if asked { input.into_leaf() } else { input.into_constant() };
        let module = self.module.clone().train();
        let output = module.forward(input.clone(), pass);
        self.collect_reported(pass, statistics);
        (output.clone().into_values(), Recording { input, asked, module, output })
    }

    /// Takes the gradient of the output back to the input, where that was asked for; those of the
    /// parameters are added to `gradients`.
    pub fn back(
        &self,
        recording: Recording<M>,
        gradient: Activation,
        gradients: &mut Gradients,
    ) -> Option<Activation> {
        let Recording { input, asked, module, output } = recording;
        let mut found = output.inner_product(gradient).backward();
        let mut collector =
            Collector { walk: Walk::new(&self.naming), found: &mut found, gradients };
        module.visit(&mut collector);
        asked.then(|| input.gradient(&mut found))
    }

    fn collect_reported(&self, pass: &Pass, statistics: &mut Statistics) {
        let reported = pass.take_reported();
        if reported.is_empty() {
            return;
        }
        let names = self.names();
        for statistic in reported {
            let name = names.iter().find(|(id, _)| *id == statistic.id);
            let (_, name) = name.expect("a module reports only its own statistics");
            statistics.insert(name.clone(), (statistic.value, statistic.momentum));
        }
    }

    fn names(&self) -> Vec<(ParamId, String)> {
        let mut names = Names { walk: Walk::new(&self.naming), names: Vec::new() };
        self.module.visit(&mut names);
        names.names
    }
}

/// How the paths inside a module become the names of its parameters.
#[derive(Debug)]
struct Naming {
    renames: Vec<(String, String)>,
}

/// The path to where a traversal of a module is.
struct Walk<'a> {
    naming: &'a Naming,
    path: Vec<String>,
}

impl<'a> Walk<'a> {
    fn new(naming: &'a Naming) -> Self {
        Self { naming, path: Vec::new() }
    }

    fn enter(&mut self, name: &str, container: &str) {
        match (container, name.parse::<usize>(), self.path.last_mut()) {
            ("Vec", Ok(index), Some(field)) => {
                let element = format!("{field}{}", index + 1);
                self.path.push(element);
            }
            _ => self.path.push(name.to_owned()),
        }
    }

    fn exit(&mut self) {
        self.path.pop();
    }

    /// The name of the parameter at the path. Of a list's field and its element, both of which are
    /// on the path, only the element counts.
    fn name(&self) -> String {
        let mut parts: Vec<&str> = Vec::with_capacity(self.path.len());
        for (place, part) in self.path.iter().enumerate() {
            let is_list = self.path.get(place + 1).is_some_and(|next| {
                next.strip_prefix(part.as_str())
                    .is_some_and(|index| !index.is_empty() && index.parse::<usize>().is_ok())
            });
            if !is_list {
                parts.push(part);
            }
        }
        let path = parts.join(".");
        let rename = self.naming.renames.iter().find(|(from, _)| path.starts_with(from.as_str()));
        match rename {
            Some((from, to)) => format!("{to}{}", &path[from.len()..]),
            None => path,
        }
    }
}

/// The two methods by which a visitor or mapper follows where it is.
macro_rules! follow_the_walk {
    () => {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.walk.enter(name, container);
        }

        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.walk.exit();
        }
    };
}

struct Names<'a> {
    walk: Walk<'a>,
    names: Vec<(ParamId, String)>,
}

impl ModuleVisitor for Names<'_> {
    follow_the_walk!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.names.push((param.id, self.walk.name()));
    }
}

struct Lister<'a> {
    walk: Walk<'a>,
    parameters: Vec<Parameter>,
}

impl ModuleVisitor for Lister<'_> {
    follow_the_walk!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        self.parameters.push(Parameter {
            name: self.walk.name(),
            shape: value.dims().to_vec(),
            trained: param.clone().train().is_require_grad(),
            value: value.reshape([-1]),
        });
    }
}

struct Collector<'a> {
    walk: Walk<'a>,
    found: &'a mut burn::tensor::Gradients,
    gradients: &'a mut Gradients,
}

impl ModuleVisitor for Collector<'_> {
    follow_the_walk!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = param.val().grad_remove(self.found) {
            self.gradients.add(&self.walk.name(), gradient);
        }
    }
}

struct Changer<'a> {
    walk: Walk<'a>,
    change: &'a mut dyn FnMut(&str, Tensor<1>) -> Tensor<1>,
}

impl ModuleMapper for Changer<'_> {
    follow_the_walk!();

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.walk.name();
        param.map(|value| {
            let shape = value.dims();
            (self.change)(&name, value.reshape([-1])).reshape(shape)
        })
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;
    use crate::memory::{ActivationShape, Chain, Purpose, Schedule, StageSpec, executor};
    use crate::model::{DensenetArchitecture, Norm};

    fn specs(norm: Norm, dropout: f64) -> Vec<Box<dyn StageSpec>> {
        let (growth, stem, blocks) = (4, 6, vec![2, 2]);
        let sizes = DensenetArchitecture {
            growth,
            blocks,
            stem,
            bottleneck: 2,
            compression: 0.5,
            dropout,
            norm,
        };
        sizes.stages(1, &Default::default())
    }

    fn images() -> Activation {
        let values: Vec<f32> = (0..3 * 40 * 36).map(|i| (i as f32 * 0.7).sin()).collect();
        let data = TensorData::new(values, [3, 1, 40, 36]);
        Activation::Map(Tensor::from_data(data, &Device::flex()))
    }

    fn values(activation: Activation) -> Vec<f32> {
        match activation {
            Activation::Map(map) => map.into_data(),
            #[cfg(feature = "cuda")]
            Activation::Device(map) => map.to_tensor().into_data(),
            Activation::Features(features) => features.into_data(),
            Activation::Outputs(mut outputs) => outputs.remove(0).into_data(),
        }
        .iter()
        .collect()
    }

    fn train(chain: &Chain) -> executor::StepResult {
        let schedule = Schedule::keep_all(chain.stages().len(), 1);
        executor::train(
            chain,
            &schedule,
            1,
            0,
            |_| images(),
            |_, output| match output {
                Activation::Features(features) => Activation::Features(features.ones_like()),
                other => panic!("features were expected, not {:?}", other.shape()),
            },
        )
    }

    #[test]
    fn every_trained_parameter_gets_a_gradient_of_its_size() {
        for norm in [Norm::Batch, Norm::Group] {
            let chain = Chain::init(&specs(norm, 0.0), &Device::flex(), 7);
            let gradients = train(&chain).gradients;
            let trained: Vec<_> = chain.parameters().into_iter().filter(|p| p.trained).collect();
            assert_eq!(gradients.len(), trained.len());
            for parameter in trained {
                let gradient = gradients.get(&parameter.name).expect("a gradient");
                assert_eq!(gradient.dims(), parameter.value.dims(), "{}", parameter.name);
            }
        }
    }

    #[test]
    fn planned_shapes_are_those_that_come_out() {
        let specs = specs(Norm::Batch, 0.0);
        let chain = Chain::init(&specs, &Device::flex(), 7);
        let mut shape = ActivationShape::Map([3, 1, 40, 36]);
        let mut flowing = images();
        for (spec, stage) in specs.iter().zip(chain.stages()) {
            let pass = Pass::evaluation();
            (flowing, _) = stage.forward(flowing, Keep::Nothing, &pass, &mut Statistics::new());
            shape = spec.output(&shape);
            assert_eq!(flowing.shape(), shape, "{}", stage.name());
            assert_eq!(stage.name(), spec.name());
        }
    }

    #[test]
    fn a_recomputed_stage_gives_the_same_output_and_reports_no_statistics_again() {
        let chain = Chain::init(&specs(Norm::Batch, 0.5), &Device::flex(), 7);
        let stem = &chain.stages()[0];
        let run = |stage: &dyn Stage, input: Activation, purpose, keep| {
            let mut statistics = Statistics::new();
            let pass = Pass::new(purpose, 1, 4, 0);
            let (output, _) = stage.forward(input, keep, &pass, &mut statistics);
            (values(output), statistics.len())
        };
        let pass = Pass::new(Purpose::First, 1, 4, 0);
        let (input, _) = stem.forward(images(), Keep::Nothing, &pass, &mut Statistics::new());
        let block = chain.stages()[1].as_ref();
        let (first, reported) = run(block, input.clone(), Purpose::First, Keep::Nothing);
        let (again, reported_again) = run(block, input.clone(), Purpose::Recompute, Keep::All);
        assert_eq!(first, again, "the same dropout masks, the same bits");
        assert_eq!((reported, reported_again), (2 * 2 * 2, 0));
        let (evaluated, _) = run(block, input, Purpose::Evaluate, Keep::Nothing);
        assert_ne!(first, evaluated);
    }

    #[test]
    fn training_changes_nothing_until_the_step_is_taken() {
        let mut chain = Chain::init(&specs(Norm::Batch, 0.0), &Device::flex(), 7);
        let read = |chain: &Chain| -> Vec<Vec<f32>> {
            chain.parameters().into_iter().map(|p| p.value.into_data().iter().collect()).collect()
        };
        let before = read(&chain);
        let result = train(&chain);
        assert_eq!(read(&chain), before);
        chain.move_statistics(&result.statistics[0]);
        let moved = chain.parameters().into_iter().zip(before).filter(|(parameter, before)| {
            parameter.value.to_data().iter::<f32>().collect::<Vec<_>>() != *before
        });
        let moved: Vec<_> = moved.map(|(parameter, _)| parameter.name).collect();
        assert_eq!(moved.len(), result.statistics[0].len());
        assert!(moved.iter().all(|name| name.contains(".running_")), "{moved:?}");
    }
}
