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
}

/// What [`Traced`] keeps: the recorded graph from the leaves to the output.
struct Recording<M> {
    input: Activation,
    module: M,
    output: Activation,
}

impl<M: Forward + 'static> Traced<M> {
    /// A stage called `name`. A parameter's name is its path in the module, with the element `k` of
    /// a list `field` called `field{k + 1}` as torchvision does; then the first pair of `renames`
    /// whose left side the path starts with replaces that start by the right side.
    pub fn new(name: &str, renames: &[(&str, &str)], module: M) -> Self {
        let renames = renames.iter().map(|(from, to)| ((*from).into(), (*to).into())).collect();
        Self { name: name.to_owned(), naming: Naming { renames }, module }
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
        let (output, saved) = match keep {
            Keep::Nothing => (self.module.forward(input, pass), None),
            Keep::All => {
                let input = input.into_leaf();
                let module = self.module.clone().train();
                let output = module.forward(input.clone(), pass);
                let values = output.clone().into_values();
                (values, Some(Saved(Box::new(Recording { input, module, output }))))
            }
        };
        let reported = pass.take_reported();
        if !reported.is_empty() {
            let names = self.names();
            for statistic in reported {
                let name = names.iter().find(|(id, _)| *id == statistic.id);
                let (_, name) = name.expect("a module reports only its own statistics");
                statistics.insert(name.clone(), (statistic.value, statistic.momentum));
            }
        }
        (output, saved)
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: Activation,
        gradients: &mut Gradients,
    ) -> Activation {
        let recording = saved.0.downcast::<Recording<M>>();
        let Recording { input, module, output } = *recording
            .unwrap_or_else(|_| panic!("{} was given what another stage kept", self.name));
        let mut found = output.inner_product(gradient).backward();
        let mut collector =
            Collector { walk: Walk::new(&self.naming), found: &mut found, gradients };
        module.visit(&mut collector);
        input.gradient(&mut found)
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
