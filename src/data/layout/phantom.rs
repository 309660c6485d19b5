//! The phantom: CheXpert's layout, drawn on first use.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use super::check::{check_choice, check_root};
use super::{Layout, List, Row, Vocabulary, chexpert};
use crate::data::config::{PhantomConfig, Uncertain};
use crate::data::error::DataError;
use crate::data::phantom::{PHANTOM_SIZES, PhantomSettings, ensure_phantom, wrong_nodules};
use crate::fault::{Fault, fault};
use crate::model::HeadConfig;

impl Layout for PhantomConfig {
    fn vocabulary(&self, _heads: &[HeadConfig]) -> Vocabulary {
        chexpert::vocabulary()
    }

    fn lists(&self) -> &[List] {
        &[List::Train]
    }

    fn read(
        &self,
        vocabulary: &Vocabulary,
        needed: &[usize],
        wanted: &[List],
    ) -> Result<BTreeMap<List, Vec<Row>>, DataError> {
        chexpert::read(&self.root, self.views.as_deref(), vocabulary, needed, wanted)
    }

    fn root(&self) -> PathBuf {
        self.root.clone()
    }

    fn uncertain(&self) -> Option<&Uncertain> {
        Some(&self.uncertain)
    }

    fn prepare(
        &self,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<(), DataError> {
        ensure_phantom(&PhantomSettings::from(self), progress).map(drop)
    }

    fn check(&self) -> Result<(), Fault> {
        check_root(&self.root)?;
        if self.patients < 2 {
            let message = format!("{} patients cannot be split in two", self.patients);
            return Err(fault("patients", message, "write 2 or more"));
        }
        if !PHANTOM_SIZES.contains(&self.size) {
            let message = format!("phantoms of {} pixels a side are not drawn", self.size);
            return Err(fault("size", message, "write a side from 32 to 3000"));
        }
        if let Some(message) = self.nodules.and_then(|nodules| wrong_nodules(nodules, self.size)) {
            return Err(fault("nodules", message, "write two diameters, such as [8, 24]"));
        }
        check_choice("views", "view", self.views.as_deref(), chexpert::VIEWS_OFFERED)
    }
}
