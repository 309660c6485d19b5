//! Gradients by the key of what they belong to, flattened.

use std::collections::BTreeMap;

use burn::tensor::Tensor;

/// The gradient of each [bucket](super::Bucket) of parameters, by its key (where a parameter lies alone,
/// its name), flattened to one dimension.
#[derive(Debug, Clone, Default)]
pub struct Gradients {
    by_name: BTreeMap<String, Tensor<1>>,
}

impl From<BTreeMap<String, Tensor<1>>> for Gradients {
    fn from(by_name: BTreeMap<String, Tensor<1>>) -> Self {
        Self { by_name }
    }
}

impl Gradients {
    /// Adds `gradient`, of any shape, to what is there for `name`.
    pub fn add<const D: usize>(&mut self, name: &str, gradient: Tensor<D>) {
        let gradient = gradient.reshape([-1]);
        match self.by_name.remove(name) {
            Some(sum) => self.by_name.insert(name.to_owned(), sum + gradient),
            None => self.by_name.insert(name.to_owned(), gradient),
        };
    }

    /// The gradient of `name`, flattened.
    pub fn get(&self, name: &str) -> Option<&Tensor<1>> {
        self.by_name.get(name)
    }

    /// Every parameter's name and flattened gradient, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor<1>)> {
        self.by_name.iter().map(|(name, gradient)| (name.as_str(), gradient))
    }

    /// Each gradient by the name of its parameter.
    pub fn into_map(self) -> BTreeMap<String, Tensor<1>> {
        self.by_name
    }

    /// Replaces each gradient by `change` of it.
    pub fn map(self, change: impl Fn(Tensor<1>) -> Tensor<1>) -> Self {
        let changed = self.by_name.into_iter().map(|(name, gradient)| (name, change(gradient)));
        Self { by_name: changed.collect() }
    }
}
