//! placeholder until the config branch lands
use super::Norm;
/// .
#[derive(Debug, Clone, PartialEq)]
pub struct DensenetArchitecture {
    /// .
    pub growth: usize,
    /// .
    pub blocks: Vec<usize>,
    /// .
    pub stem: usize,
    /// .
    pub bottleneck: usize,
    /// .
    pub compression: f64,
    /// .
    pub dropout: f64,
    /// .
    pub norm: Norm,
}
